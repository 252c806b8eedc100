"""Udev rules that set read-ahead, I/O scheduler, queue depth or a sysctl (udev(7))."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from moetuned.parse.boot_commands import read_ahead_by_command

_TOKEN = re.compile(
    r"""\s*,?\s*(?P<key>[A-Z_]+)(?:\{(?P<attribute>[^}]*)\})?\s*(?P<operator>==|!=|\+=|-=|:=|=)\s*(?P<prefix>[ei]*)"(?P<value>(?:[^"\\]|\\.)*)\""""
)
_READ_AHEAD = frozenset({"queue/read_ahead_kb", "bdi/read_ahead_kb"})
_QUEUE = _READ_AHEAD | {"queue/scheduler", "queue/nr_requests"}
_ASSIGNS = frozenset({"=", ":=", "+="})
_IN_COMMAND = re.compile(r"(?:queue|bdi)/(?:read_ahead_kb|scheduler|nr_requests)")


class UdevSetting(msgspec.Struct, frozen=True):
    """What one rule sets. `paths` are kernel files with `*` where any device is meant; `value` None: by a command or `%`.

    `conditions` are the rule's other matches as they stand there.
    """

    paths: tuple[str, ...]
    value: str | None
    conditions: tuple[str, ...]
    file: str
    line: int


class _Token(msgspec.Struct, frozen=True):
    key: str
    attribute: str
    operator: str
    value: str
    text: str


def parse_udev_rules(text: str, file: str) -> tuple[UdevSetting, ...]:
    """The settings of one file in its order. What is no rule, or sets none of these, is left out."""
    return tuple(setting for number, rule in _rules(text) for setting in _settings(_tokens(rule), file, number))


def _rules(text: str) -> Iterator[tuple[int, str]]:
    """Rules with the number of their first line; a backslash at the end of a line joins the next one to it."""
    joined, start = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not joined:
            start = number
            if line.lstrip().startswith("#"):
                continue
        if line.endswith("\\"):
            joined += line[:-1]
            continue
        if rule := (joined + line).strip():
            yield start, rule
        joined = ""
    if joined.strip():
        yield start, joined.strip()


def _tokens(rule: str) -> tuple[_Token, ...]:
    """The rule's `KEY{attribute}=="value"` in order, up to what is none (udev drops a rule that it cannot read)."""
    found = []
    end = 0
    while match := _TOKEN.match(rule, end):
        end = match.end()
        found.append(
            _Token(
                match["key"],
                match["attribute"] or "",
                match["operator"],
                match["value"].replace('\\"', '"'),
                match[0].strip(" ,\t"),
            )
        )
    return tuple(found) if not rule[end:].strip(" ,\t") else ()


def _settings(tokens: tuple[_Token, ...], file: str, line: int) -> Iterator[UdevSetting]:
    kernels: tuple[str, ...] = ("*",)
    subsystem = ""
    conditions: list[str] = []
    for token in tokens:
        if token.operator not in ("==", "!="):
            continue
        if token.key == "KERNEL" and token.operator == "==":
            kernels = tuple(token.value.split("|"))
        elif token.key == "SUBSYSTEM" and token.operator == "==":
            subsystem = token.value
        elif token.key != "ACTION":
            conditions.append(token.text)
    for token in tokens:
        paths, value = _set_by(token, kernels, subsystem)
        if paths:
            yield UdevSetting(paths, value, tuple(conditions), file, line)


def _set_by(token: _Token, kernels: tuple[str, ...], subsystem: str) -> tuple[tuple[str, ...], str | None]:
    value = None if re.search(r"[%$]", token.value) else token.value
    if token.operator not in _ASSIGNS:
        return (), None
    if token.key == "ATTR" and token.attribute in _QUEUE:
        return tuple(f"/sys/block/{kernel}/{token.attribute}" for kernel in kernels), value
    if token.key == "ATTR" and token.attribute == "read_ahead_kb" and subsystem in ("bdi", ""):
        return tuple(f"/sys/class/bdi/{kernel}/read_ahead_kb" for kernel in kernels), value
    if token.key == "SYSCTL":
        return (f"/proc/sys/{token.attribute.replace('.', '/')}",), value
    if token.key == "RUN" and (named := _IN_COMMAND.search(token.value)):
        return tuple(f"/sys/block/{kernel}/{named[0]}" for kernel in kernels), None
    if token.key == "RUN" and (read_ahead := read_ahead_by_command(token.value)):
        return tuple(f"/sys/block/{kernel}/queue/read_ahead_kb" for kernel in kernels), read_ahead.value
    return (), None
