"""Unit files and their drop-ins as text: lines, and what all files of a service say together (systemd.syntax(7), systemd.exec(5)).

Values stay as they are written: quotes, specifiers and variables are for whoever reads one (`parse.exec_words`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

OWN_SECTION = "X-Moetuned"
"""systemd passes over sections whose names begin with X-."""


class Line(NamedTuple):
    """One assignment."""

    section: str
    key: str
    value: str


class UnitFile(msgspec.Struct, frozen=True):
    """One file of a unit."""

    path: str
    text: str


class ServiceText(msgspec.Struct, frozen=True):
    """What the files of a service say together. Each value with the path of its file; lists without what an empty value took back.

    `own`: the assignments of the section that is moetuned's.
    """

    commands: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    environment_files: tuple[tuple[str, str], ...] = ()
    unset: tuple[tuple[str, str], ...] = ()
    type: str = ""
    own: tuple[tuple[str, str], ...] = ()


_LISTS = {
    "ExecStart": "commands",
    "Environment": "environment",
    "EnvironmentFile": "environment_files",
    "UnsetEnvironment": "unset",
}


def parse_unit_file(text: str) -> tuple[Line, ...]:
    """Its assignments in order. A line that ends in a backslash goes on in the next one, with a blank in its place; comments between
    the two are left out, as systemd does. What is neither a section nor an assignment says nothing.
    """
    found: list[Line] = []
    section, begun = "", ""
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    for number, raw in enumerate(lines):
        if raw.lstrip(" \t").startswith(("#", ";")):
            continue
        line = begun + raw
        begun = ""
        if _goes_on(line) and number + 1 < len(lines):
            begun = line[:-1] + " "
            continue
        section = _read(line, section, found)
    if begun:  # Only comments came after it.
        _read(begun, section, found)
    return tuple(found)


def _read(line: str, section: str, found: list[Line]) -> str:
    """Add what a whole line says; returns the section from here on."""
    line = line.strip()
    if line.startswith("["):
        return line[1:-1] if line.endswith("]") else section
    key, equals, value = line.partition("=")
    if equals and key.strip():
        found.append(Line(section, key.strip(), value.strip()))
    return section


def _goes_on(line: str) -> bool:
    """Whether it ends in a backslash that no other escapes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def merge_service(files: Iterable[UnitFile]) -> ServiceText:
    """What the unit's own file and its drop-ins, in the order they are read, say together."""
    lists: dict[str, list[tuple[str, str]]] = {name: [] for name in _LISTS.values()}
    kind = ""
    own: dict[str, str] = {}
    for file in files:
        for line in parse_unit_file(file.text):
            if line.section == OWN_SECTION:
                own[line.key] = line.value
            elif line.section == "Service" and line.key in _LISTS:
                values = lists[_LISTS[line.key]]
                if line.value:
                    values.append((file.path, line.value))
                else:
                    values.clear()
            elif line.section == "Service" and line.key == "Type":
                kind = line.value
    return ServiceText(
        commands=tuple(lists["commands"]),
        environment=tuple(lists["environment"]),
        environment_files=tuple(lists["environment_files"]),
        unset=tuple(lists["unset"]),
        type=kind,
        own=tuple(own.items()),
    )


def reading_order_with(paths: Sequence[str], added: str) -> tuple[str, ...]:
    """Paths of drop-ins, in the order they are read, with one more: by file name, whatever the directory (systemd.unit(5)).

    One of the same name in another directory is replaced by it.
    """
    name = added.rpartition("/")[2]
    others = [path for path in paths if path.rpartition("/")[2] != name]
    return tuple(sorted((*others, added), key=lambda path: path.rpartition("/")[2].encode()))
