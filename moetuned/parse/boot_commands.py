"""Kernel settings that shell commands write, as far as they can be read off: `echo never > /sys/…`, `sysctl -w`, `blockdev --setra`.

For the units and rc.local by which people commonly set such things at boot. Nothing is run, and what is not plain is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from moetuned.parse.sysctl_conf import PROC_SYS, key_path

_PATH = r"[\"']?(/(?:sys|proc/sys)/[\w./*?$%{}@-]+)[\"']?"
_ECHO = re.compile(
    r"\becho\s+(?:-n\s+)?[\"']?([\w+-]+)[\"']?\s*(?:>+\s*" + _PATH + r"|\|[^|;&>]*\btee\s+((?:[^\s|;&]+\s*)+))"
)
_IN_TEE = re.compile(_PATH)
_SYSCTL = re.compile(r"\bsysctl\s+(?:-\w+\s+)*[\"']?([\w./-]+)\s?=\s?[\"']?([\w+-]+)")
_BLOCKDEV = re.compile(r"\bblockdev\s+--setf?ra\s+(\d{1,9})\s+(\S+)")
_VARIABLE = re.compile(r"[$%]+\{?\w+\}?")
_WHOLE_DISK = re.compile(r"((?:[shv]d|xvd)[a-z]+|nvme\d+n\d+|mmcblk\d+|md\d+|dm-\d+)(?:p?\d+)?")
_NOT_RUN = ("#", ";", "ExecStop", "ExecReload", "Description", "Documentation", "Condition", "Assert")
_MOST_CHARACTERS = 4096


class Command(msgspec.Struct, frozen=True):
    """A kernel file that a line writes, with `*` for a variable, and the value."""

    path: str
    value: str
    line: int


def parse_boot_commands(text: str) -> tuple[Command, ...]:
    """The settings that the lines of a shell script or a service unit write at start, in order."""
    return tuple(command for number, line in enumerate(text.split("\n"), 1) for command in _commands(line, number))


def read_ahead_by_command(command: str) -> Command | None:
    """What `blockdev --setra` in a command sets: the read-ahead of its disk in KiB (it counts sectors of 512 bytes)."""
    match = _BLOCKDEV.search(command[:_MOST_CHARACTERS])
    if match is None:
        return None
    name = match[2].strip("\"';").removeprefix("/dev/")
    disk = _WHOLE_DISK.fullmatch(name)
    return Command(f"/sys/block/{disk[1] if disk else '*'}/queue/read_ahead_kb", str(int(match[1]) // 2), 0)


def _commands(line: str, number: int) -> Iterator[Command]:
    stripped = line.strip()[:_MOST_CHARACTERS]
    if not stripped or stripped.startswith(_NOT_RUN):
        return
    for match in _ECHO.finditer(stripped):
        for path in _IN_TEE.findall(match[3]) if match[2] is None else [match[2]]:
            yield Command(_VARIABLE.sub("*", path), match[1], number)
    for match in _SYSCTL.finditer(stripped):
        yield Command(PROC_SYS + key_path(match[1]), match[2], number)
    read_ahead = read_ahead_by_command(stripped)
    if read_ahead is not None:
        yield msgspec.structs.replace(read_ahead, line=number)
