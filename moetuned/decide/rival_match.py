"""Which rivals set a given kernel file: by path, by class of device, and by the several names one read-ahead has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from moetuned.schema.rival import Rival
from moetuned.schema.tunable import Bound, Place

_OF_DEVICE = re.compile(r"/sys/(block)/([^/]+)/(?:queue|bdi)/(read_ahead_kb|scheduler|nr_requests)")
_OF_BDI = re.compile(r"/sys/class/(bdi)/([^/]+)/(read_ahead_kb)")
_ANY_NUMBERS = ("8:0", "259:3")
SWAPS = "/proc/swaps"
"""The `path` of a rival that makes swap."""

_NUMBER = re.compile(r"[0-9]{1,19}")
_GLOB = frozenset("*?[")


def rivals_of(rivals: Iterable[Rival], place_paths: Iterable[str]) -> tuple[Rival, ...]:
    """The rivals that set one of `place_paths`, in their order, each once. Give both files of a pair (dirty_ratio, dirty_bytes).

    The read-ahead of a disk is one number with three names: queue/read_ahead_kb and bdi/read_ahead_kb of the device,
    and the device's number in /sys/class/bdi. A bdi of a file system's own (btrfs-1) is not the disk's.
    """
    places = [_setting(path) for path in place_paths]
    return tuple(dict.fromkeys(rival for rival in rivals if any(_covers(_setting(rival.path), at) for at in places)))


def disagrees(rival: Rival, value: str) -> bool:
    """Whether the rival may leave something else than `value` there; one whose value is unknown may."""
    if rival.value is None:
        return True
    if rival.bound is Bound.SET:
        return _normal(rival.value) != _normal(value)
    try:
        theirs, ours = int(rival.value), int(value)
    except ValueError:
        return True
    return theirs > ours if rival.bound is Bound.AT_LEAST else theirs < ours


def who_else_sets(rivals: Iterable[Rival], place: Place, value: str | None = None) -> tuple[str, ...]:
    """A clause for each rival that sets the setting; with `value` only those that may leave something else there."""
    paths = [path for path in (place.path, place.twin_path) if path is not None]
    found = rivals_of(rivals, paths)
    # One who sets both files of a pair is one, and 0 in the other one only says that it is not in force.
    clauses = (
        describe_rival(rival)
        for rival in found
        if not (rival.path == place.twin_path and rival.value == "0")
        if value is None or disagrees(rival, value)
    )
    return tuple(dict.fromkeys(clauses))


def describe_rival(rival: Rival) -> str:
    """One clause: who sets what to which value, when, and under which condition."""
    if rival.path == SWAPS:
        return f"{rival.what} makes swap on {rival.value} {rival.when}"
    how = {Bound.SET: "sets it to", Bound.AT_LEAST: "raises it to", Bound.AT_MOST: "lowers it to"}[rival.bound]
    deed = f"{how} {rival.value}" if rival.value is not None else "sets it (to a value that is only known when it runs)"
    only = f", only where {rival.only}" if rival.only else ""
    return f"{rival.what} {deed} {rival.when}{only}"


class _Setting(msgspec.Struct, frozen=True):
    """What is set (the whole path where it is no device's), and of which device, named as in /sys/block or /sys/class/bdi."""

    what: str
    named_in: str = ""
    device: str = ""


def _setting(path: str) -> _Setting:
    match = _OF_DEVICE.fullmatch(path) or _OF_BDI.fullmatch(path)
    return _Setting(path) if match is None else _Setting(match[3], match[1], match[2])


def _covers(pattern: _Setting, place: _Setting) -> bool:
    if pattern == place:
        return True
    if not pattern.device:
        return not place.device and not _GLOB.isdisjoint(pattern.what) and _same_parts(pattern.what, place.what)
    if pattern.what != place.what:
        return False
    if pattern.named_in == place.named_in:
        return fnmatchcase(place.device, pattern.device)
    # One disk's name and number cannot be told to be the same here, so only a pattern for all of them covers it.
    if pattern.named_in == "bdi":
        return all(fnmatchcase(number, pattern.device) for number in _ANY_NUMBERS)
    return pattern.device == "*" and place.device[:1].isdigit()


def _same_parts(pattern: str, path: str) -> bool:
    parts, names = pattern.split("/"), path.split("/")
    return len(parts) == len(names) and all(map(fnmatchcase, names, parts))


def _normal(value: str) -> str:
    """White space and leading zeros mean nothing to the kernel."""
    return " ".join(str(int(word)) if _NUMBER.fullmatch(word) else word for word in value.split())
