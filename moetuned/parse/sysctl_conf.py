"""Files of /etc/sysctl.d and its kin, as systemd-sysctl reads them (sysctl.d(5), systemd-sysctl.service(8))."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

import msgspec

PROC_SYS = "/proc/sys/"
_GLOB = frozenset("*?[")
_SWAP = str.maketrans("./", "/.")


class Assignment(msgspec.Struct, frozen=True):
    """One line. `key` is a path below /proc/sys, perhaps a glob; `value` None: an exclusion, globs leave this key alone."""

    key: str
    value: str | None
    file: str
    line: int

    @property
    def is_glob(self) -> bool:
        """Whether the key stands for all that match it."""
        return not _GLOB.isdisjoint(self.key)


def key_path(key: str) -> str:
    """The path below /proc/sys that a key means: `vm.dirty_ratio` and `vm/dirty_ratio` are `vm/dirty_ratio`.

    If the first separator is a dot, dots and slashes are interchanged; else the key is a path already (sysctl.d(5)).
    """
    separator = next((character for character in key if character in "./"), "/")
    path = key.translate(_SWAP) if separator == "." else key
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def parse_sysctl_conf(text: str, file: str) -> tuple[Assignment, ...]:
    """The assignments of one file in its order. Comments (`#`, `;`) and lines that are none are left out."""
    found: list[Assignment] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line[0] in "#;" or "\0" in line:
            continue
        key, equals, value = line.partition("=")
        excluded = not equals
        if excluded and not key.startswith("-"):
            continue
        path = key_path(key.removeprefix("-").strip())
        if path:
            found.append(Assignment(path, None if excluded else value.strip(), file, number))
    return tuple(found)


def matches(pattern: str, key: str) -> bool:
    """Whether a glob covers a key; a `*` does not cross a slash (glob(7))."""
    parts, names = pattern.split("/"), key.split("/")
    return len(parts) == len(names) and all(fnmatchcase(name, part) for part, name in zip(parts, names, strict=True))


def in_force(assignments: Iterable[Assignment], expand: Callable[[str], Iterable[str]]) -> dict[str, Assignment]:
    """The assignment that counts for each key, from all files in reading order.

    The last one of a key wins, a glob leaves keys alone that have an assignment or an exclusion of their own, and of two globs
    the later one wins. `expand` gives the keys that exist for a glob.
    """
    last: dict[str, Assignment] = {}
    for assignment in assignments:
        before = last.get(assignment.key)
        if before is not None and before.value == assignment.value:
            continue  # systemd keeps the place of the earlier line
        last.pop(assignment.key, None)
        last[assignment.key] = assignment
    counted: dict[str, Assignment] = {}
    for assignment in last.values():
        if assignment.value is None:
            continue
        if not assignment.is_glob:
            counted[assignment.key] = assignment
            continue
        for key in expand(assignment.key):
            if key not in last and matches(assignment.key, key):
                counted[key] = assignment
    return counted
