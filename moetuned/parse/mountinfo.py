"""/proc/<pid>/mountinfo: what is mounted where (proc(5), Documentation/filesystems/proc.rst)."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(msgspec.Struct, frozen=True):
    """One mount. `root` is the directory of the file system that is seen at `point`; `options` are the file system's."""

    major: int
    minor: int
    root: str
    point: str
    kind: str
    source: str
    options: frozenset[str]


def parse_mountinfo(text: str, kind: str = "") -> tuple[Mount, ...]:
    """All mounts in order; lines that are cut or strange are left out. `kind`: only file systems whose names begin with it.

    Lines end with a newline and nothing else: a mount point may hold any other character that `str.splitlines` takes for an end.
    """
    ends = f" - {kind}"  # a blank is written as an escape everywhere else
    return tuple(mount for line in text.split("\n") if ends in line and (mount := _mount(line)) is not None)


def mount_of(mounts: Iterable[Mount], path: str) -> Mount | None:
    """The mount that holds the absolute `path` (links resolved): the longest mount point above it, the last of equal ones."""
    best: Mount | None = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _mount(line: str) -> Mount | None:
    fields = line.split(" ")
    try:
        dash = fields.index("-", 6)
        kind, source, options = fields[dash + 1 : dash + 4]
        major, _, minor = fields[2].partition(":")
        point = _unescape(fields[4])
        if not point.startswith("/") or "\0" in point:
            return None
        return Mount(
            major=int(major),
            minor=int(minor),
            root=_unescape(fields[3]),
            point=point,
            kind=kind,
            source=_unescape(source),
            options=frozenset(options.split(",")),
        )
    except (ValueError, IndexError):
        return None


def _unescape(text: str) -> str:
    """Space, tab, newline and backslash are written as octal escapes."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text) if "\\" in text else text
