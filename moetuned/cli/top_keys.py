"""Bytes from a terminal as keys: characters, arrows, Enter, Tab, Escape. What is no key of ours is passed over, never kept."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
_BEGUN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?")
_NAMED = {b"A": "up", b"B": "down", b"M": "enter"}
_MOST_BEGUN = 32
"""A sequence that is longer is none."""


def keys_of(data: bytes) -> tuple[list[str], bytes]:
    """Keys in `data`, and the beginning of a sequence at its end, to be put before what comes next.

    A lone Escape is such a beginning too: when nothing comes, it is the key, see `lone_escape`.
    """
    keys: list[str] = []
    position = 0
    while position < len(data):
        byte = data[position : position + 1]
        if byte == b"\x1b":
            found = _SEQUENCE.match(data, position)
            if found is not None:
                name = _NAMED.get(found[0][-1:])
                keys.extend([name] if name else [])
                position = found.end()
                continue
            begun = _BEGUN.match(data, position)
            if begun is not None and begun.end() == len(data):
                rest = data[position:]
                return keys, rest if len(rest) <= _MOST_BEGUN else b""
            keys.append("escape")
        elif byte in (b"\r", b"\n"):
            keys.append("enter")
        elif byte == b"\t":
            keys.append("tab")
        elif byte == b"\x0c":
            keys.append("redraw")
        elif b" " <= byte <= b"~":
            keys.append(byte.decode("ascii"))
        position += 1
    return keys, b""


def lone_escape(rest: bytes) -> list[str]:
    """Keys that the beginning of a sequence is when nothing followed it."""
    return ["escape"] if rest == b"\x1b" else []
