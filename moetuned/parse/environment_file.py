"""Files of variables as systemd reads them (EnvironmentFile=, systemd.exec(5)): quotes, escapes, comments, values over several lines.

Source: parse_env_file_internal of systemd's src/basic/env-file.c, as it is since version 254.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANKS = " \t\r\n"
_LINE_ENDS = "\r\n"
_ESCAPED_IN_QUOTES = '"\\`$'


def in_double_quotes(value: str) -> str:
    """A value of such a file: in double quotes, in which four characters are escaped."""
    return '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'


def parse_environment_file(text: str) -> dict[str, str]:
    """Variables and their values; the last counts. What is no name of a variable is left out. Never raises."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        char = text[position]
        if char in _BLANKS:
            position += 1
        elif char in "#;":
            position = _line_end(text, position)
        else:
            position = _assignment(text, position, found)
    return found


def _line_end(text: str, position: int) -> int:
    while position < len(text) and text[position] not in _LINE_ENDS:
        position += 1
    return position


def _assignment(text: str, start: int, found: dict[str, str]) -> int:
    """Reads one assignment; returns where the next one may begin."""
    end = _line_end(text, start)
    equals = text.find("=", start, end)
    if equals < 0:
        return end
    value, position = _value(text, equals + 1)
    name = text[start:equals].rstrip(_BLANKS)
    if _NAME.fullmatch(name):
        found[name] = value
    return position


def _value(text: str, position: int) -> tuple[str, int]:
    parts: list[str] = []
    while position < len(text) and text[position] not in _LINE_ENDS:
        char = text[position]
        if char == "'":
            end = text.find("'", position + 1)
            end = len(text) if end < 0 else end
            parts.append(text[position + 1 : end])
            position = end + 1
        elif char == '"':
            quoted, position = _double_quoted(text, position + 1)
            parts.append(quoted)
        elif char in _BLANKS:
            position += 1
        else:
            plain, position = _plain(text, position)
            parts.append(plain)
    return "".join(parts), position


def _double_quoted(text: str, position: int) -> tuple[str, int]:
    parts: list[str] = []
    while position < len(text) and text[position] != '"':
        char = text[position]
        if char == "\\" and position + 1 < len(text):
            position += 1
            escaped = text[position]
            if escaped in _ESCAPED_IN_QUOTES:
                parts.append(escaped)
            elif escaped != "\n":
                parts.append(f"\\{escaped}")
        elif char != "\\":
            parts.append(char)
        position += 1
    return "".join(parts), position + 1


def _plain(text: str, position: int) -> tuple[str, int]:
    """To the end of the line: quotes have no meaning any more. Blanks at its end that are not escaped do not belong to it."""
    parts: list[str] = []
    kept = 0
    while position < len(text) and text[position] not in _LINE_ENDS:
        char = text[position]
        if char == "\\":
            position += 1
            if position < len(text) and text[position] not in _LINE_ENDS:
                parts.append(text[position])
            kept = len(parts)
        else:
            parts.append(char)
            kept = kept if char in _BLANKS else len(parts)
        position += 1
    return "".join(parts[:kept]), position
