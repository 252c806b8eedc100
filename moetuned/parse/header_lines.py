"""HTTP headers as an administrator writes them in a file: `Name: value`, one a line; empty lines and lines with # in front say nothing."""

from __future__ import annotations

import re

MAX_HEADERS = 32
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # token, RFC 9110 5.6.2
_VALUE = re.compile(r"[\x20-\x7e\t]{0,4096}")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect", "te", "upgrade", "trailer"})


def header_lines(text: str) -> dict[str, str]:
    """The headers. Raises ValueError with the number of the line, never with what it says: it may be a secret."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.rstrip("\r").partition(":")
        if not colon or _NAME.fullmatch(name) is None:
            raise ValueError(f"line {number} is no header; write e.g. Authorization: Bearer …")
        if _VALUE.fullmatch(value.strip()) is None:
            raise ValueError(f"line {number} holds what no header may: only printable ASCII, at most 4096 characters")
        if name.lower() in _OURS:
            raise ValueError(f"line {number}: {name} is set by moetuned; take the line out")
        if name.lower() in (each.lower() for each in found):
            raise ValueError(f"line {number}: {name} is there twice")
        found[name] = value.strip()
    if len(found) > MAX_HEADERS:
        raise ValueError(f"it has {len(found)} headers; at most {MAX_HEADERS} are sent")
    return found
