"""`NAME=value` lines of configuration files that are read by shells or read like it: TLP, laptop-mode-tools."""

from __future__ import annotations

import re

_LINE = re.compile(r"""([A-Z_][A-Z0-9_]*)(\+?=)(?:"([^"$`\\]*)"|'([^']*)'|([^\s"'$`\\;&|#()<>]*))\s*(?:#.*)?""")


def parse_assignments(text: str, before: dict[str, str] | None = None) -> dict[str, str]:
    """Names to values; the last assignment wins, `+=` appends after a space (tlp.conf). Starts from `before`.

    What a shell would have to work out (`$(…)`, variables) and every other line is left out.
    """
    found = dict(before or {})
    for line in text.split("\n"):
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        value = next((part for part in match.groups()[2:] if part is not None), "")
        found[match[1]] = f"{found[match[1]]} {value}" if match[2] == "+=" and match[1] in found else value
    return found
