"""Lines of tmpfiles.d files that write text into existing files (`w`, tmpfiles.d(5)): how /sys is commonly set at boot."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_FIELD = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)+)""", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|[0-7]{3}|.)", re.DOTALL)
_ANY = re.compile(r"\\(.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "s": " "}
_FIELDS_BEFORE_ARGUMENT = 6


class WrittenLine(msgspec.Struct, frozen=True):
    """One line. `path` may be a glob; `value` None: not known from the file (a credential, base64, a specifier)."""

    path: str
    value: str | None
    appends: bool
    only_at_boot: bool
    file: str
    line: int


def parse_tmpfiles(text: str, file: str) -> tuple[WrittenLine, ...]:
    """The `w` and `w+` lines of one file in its order; all others are left out."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        written = _written(line.strip(), file, number)
        if written is not None:
            found.append(written)
    return tuple(found)


def in_force(lines: Iterable[WrittenLine]) -> tuple[WrittenLine, ...]:
    """The lines that count, from all files in reading order: of one path the earliest; where that appends (`w+`), all that do."""
    first: dict[str, WrittenLine] = {}
    counted: list[WrittenLine] = []
    for line in lines:
        before = first.setdefault(line.path, line)
        if before is line or (before.appends and line.appends):
            counted.append(line)
    return tuple(counted)


def _written(line: str, file: str, number: int) -> WrittenLine | None:
    if not line or line[0] in "#;":
        return None
    fields: list[str] = []
    end = 0
    while len(fields) < _FIELDS_BEFORE_ARGUMENT and (match := _FIELD.match(line, end)) is not None:
        fields.append(match[1])
        end = match.end()
    if len(fields) < 2 or not fields[0].startswith("w"):
        return None
    flags = fields[0][1:]
    path = _unquoted(fields[1])
    argument = line[end:].strip() if len(fields) == _FIELDS_BEFORE_ARGUMENT else ""
    if argument in ("", "-") or not path.startswith("/"):
        return None
    value: str | None = _unescaped(argument)
    if "~" in flags or "^" in flags or "%" in argument.replace("%%", ""):
        value = None
    elif value is not None:
        value = value.replace("%%", "%").strip()
    return WrittenLine(path.replace("%%", "%"), value, "+" in flags, "!" in flags, file, number)


def _unquoted(field: str) -> str:
    """A field before the argument: a backslash there only takes the next character as it is."""
    quoted = len(field) > 1 and field[0] in "\"'" and field[-1] == field[0]
    return _ANY.sub(r"\1", field[1:-1] if quoted else field)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) == 3:
        return chr(int(code[1:], 16))
    if len(code) == 3:
        return chr(int(code, 8))
    return _SIMPLE.get(code, code)
