"""Whether the machine, and each cgroup above a backend's, has the room for what memory.min would keep (see `decide.hard_protection`)."""

from __future__ import annotations

from collections.abc import Iterator

from moetuned.decide.hard_protection import why_not
from moetuned.host.cgroup_protection import NO_NUMBER, Asked
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.tunable_files import read_tunable
from moetuned.parse.config_problem import Problem, key_path
from moetuned.parse.meminfo import parse_meminfo
from moetuned.schema.config import Config
from moetuned.schema.tunable import Codec, Place
from moetuned.schema.units import format_bytes, parse_bytes

_MACHINE = "this machine"
_NO_LIMIT_BYTES = 1 << 62
_LIMITS = ("memory.max", "memory.high")
"""Above either the kernel takes memory of those in the cgroup, or kills one of them; what their own memory.min keeps it does not take."""


def refusals(fs: HostFS, asked: Asked) -> dict[str, str]:
    """Why nothing is kept in a backend's cgroup, one sentence by its directory; those that may have it are not named.

    Where the machine has too little for all, none gets it: which of them runs first must not decide. Backends whose cgroup is not known
    (yet) count there too. Reclaim for a cgroup's own limit does not look at its own memory.min (mem_cgroup_unprotected in
    include/linux/memcontrol.h), so of that one no more than all of the limit may be kept.
    """
    roots = {cgroup.root for cgroup in asked.cgroups.values()}
    for root in roots:
        kept = _kept_below(fs, asked, root)
        against = why_not(None if kept is None else kept + asked.later_bytes, _machine_bytes(fs), _MACHINE)
        if against is not None:
            return dict.fromkeys(asked.own, against)
    found: dict[str, str] = {}
    for directory, size in asked.own.items():
        cgroup = asked.cgroups[directory]
        reasons = (_above(fs, asked, each.directory, each.name) for each in cgroup.above())
        problem = _own(fs, directory, cgroup.name, size) or next((one for one in reasons if one is not None), None)
        if problem is not None:
            found[directory] = problem
    return found


def too_much(config: Config) -> Iterator[Problem]:
    """A warning where the backends ask for more than this machine has for them; for `further` of `load_files`. Cgroups are not looked at."""
    asking = {index: one.memory_min for index, one in enumerate(config.backends) if one.memory_min is not None}
    try:
        total = sum(map(parse_bytes, asking.values()))
    except ValueError:  # an error of its own
        return
    against = why_not(total, _machine_bytes(RealFS()), _MACHINE) if total else None
    if against is not None:
        for index, size in asking.items():
            yield Problem(
                "",
                key_path(("backends", index, "memory_min")),
                repr(size),
                f"is not set: {against}",
                severity="warning",
            )


def _own(fs: HostFS, directory: str, name: str, size: int) -> str | None:
    limit = _limit_bytes(fs, directory)
    if limit is None:
        return why_not(size, None, name)
    if size <= limit:
        return None
    return f"{name} is limited to {format_bytes(limit)} itself (memory.max, memory.high), so {format_bytes(size)} cannot be kept in it"


def _above(fs: HostFS, asked: Asked, directory: str, name: str) -> str | None:
    limit = _limit_bytes(fs, directory)
    return None if limit == _NO_LIMIT_BYTES else why_not(_kept_below(fs, asked, directory), limit, name)


def _kept_below(fs: HostFS, asked: Asked, directory: str) -> int | None:
    """Bytes that all cgroups directly below one would keep, those of others included; None where that is no number.

    What stands in a cgroup above a backend's may be more than is needed there, and stays; what stands in the backend's own is replaced.
    """
    total = 0
    for name in fs.list_directory(directory):
        child = f"{directory}/{name}"
        total += asked.needed.get(child, 0)
        if child in asked.own:
            continue
        standing = asked.standing(fs, child)
        if standing == NO_NUMBER:
            return None
        total += max(0, int(standing) - asked.needed.get(child, 0))
    return total


def _limit_bytes(fs: HostFS, directory: str) -> int | None:
    """The lower of a cgroup's two limits; None where one is not known."""
    found = _NO_LIMIT_BYTES
    for file in _LIMITS:
        cell = read_tunable(fs, Place(f"{directory}/{file}", Codec.LIMIT)).cell
        if cell is None:
            return None
        found = found if cell.value == NO_NUMBER else min(found, int(cell.value))
    return found


def _machine_bytes(fs: HostFS) -> int | None:
    """RAM that programs can have: pages that are set aside as huge ones are nobody's otherwise."""
    try:
        info = parse_meminfo(fs.read_text("/proc/meminfo"))
    except OSError:
        return None
    if info is None or info.total_bytes is None:
        return None
    return max(0, info.total_bytes - (info.hugepages_bytes or 0))
