"""Whether the machine, and each cgroup above a backend's, has the room for what memory.min would keep (see `decide.hard_protection`)."""

from __future__ import annotations

from collections.abc import Iterator

from moetuned.decide.hard_protection import Use, why_not, why_short
from moetuned.decide.memory_headroom import machine_room
from moetuned.decide.unreclaimable import unreclaimable_bytes
from moetuned.host.cgroup_protection import NO_NUMBER, Asked
from moetuned.host.fs import HostFS, RealFS, read_or_none
from moetuned.host.tunable_files import read_tunable
from moetuned.parse.cgroup_memory import cgroup_file_names, parse_cgroup_memory
from moetuned.parse.config_problem import Problem, key_path
from moetuned.parse.config_values import HeadroomLimit
from moetuned.parse.meminfo import parse_meminfo
from moetuned.schema.config import Config
from moetuned.schema.sample import MemInfo
from moetuned.schema.tunable import Codec, Place
from moetuned.schema.units import format_bytes, parse_bytes

_MACHINE = "this machine"
_NO_LIMIT_BYTES = 1 << 62
_LIMITS = ("memory.max", "memory.high")
"""Above either the kernel takes memory of those in the cgroup, or kills one of them; what their own memory.min keeps it does not take."""


def refusals(fs: HostFS, asked: Asked, near: HeadroomLimit) -> dict[str, str]:
    """Why nothing is kept in a backend's cgroup, one sentence by its directory; those that may have it are not named.

    Where the machine has too little for all, none gets it: which of them runs first must not decide. Backends whose cgroup is not known
    (yet) count there too. Reclaim for a cgroup's own limit does not look at its own memory.min (mem_cgroup_unprotected in
    include/linux/memcontrol.h), so of that one no more than all of the limit may be kept. `near`: `limits.near`.
    """
    roots = {cgroup.root for cgroup in asked.cgroups.values()}
    for root in roots:
        against = _machine(fs, asked, root, near)
        if against is not None:
            return dict.fromkeys(asked.own, against)
    found: dict[str, str] = {}
    for directory, size in asked.own.items():
        cgroup = asked.cgroups[directory]
        reasons = (_above(fs, asked, each.directory, each.name, near) for each in cgroup.above())
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
    against = why_not(total, _machine_bytes(_meminfo(RealFS())), _MACHINE) if total else None
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


def _machine(fs: HostFS, asked: Asked, root: str, near: HeadroomLimit) -> str | None:
    info = _meminfo(fs)
    kept, limit = _kept_below(fs, asked, root), _machine_bytes(info)
    kept = None if kept is None else kept + asked.later_bytes
    against = why_not(kept, limit, _MACHINE)
    if against is not None or kept is None or limit is None:
        return against
    room = None if info is None else machine_room(info)
    held = None
    if info is not None and room is not None:  # Huge pages are taken off the limit.
        held = room.unreclaimable_bytes + room.swapped_bytes - (info.hugepages_bytes or 0)
    return _short(fs, asked, root, near, (held, kept, limit, _MACHINE))


def _above(fs: HostFS, asked: Asked, directory: str, name: str, near: HeadroomLimit) -> str | None:
    limit = _limit_bytes(fs, directory)
    if limit == _NO_LIMIT_BYTES:
        return None
    kept = _kept_below(fs, asked, directory)
    against = why_not(kept, limit, name)
    if against is not None or kept is None or limit is None:
        return against
    return _short(fs, asked, directory, near, (_held_bytes(fs, directory), kept, limit, name))


def _short(
    fs: HostFS, asked: Asked, directory: str, near: HeadroomLimit, of: tuple[int | None, int, int, str]
) -> str | None:
    held, kept, limit, name = of
    own = {path: size for path, size in asked.own.items() if path.startswith(f"{directory}/")}
    use = Use(held, sum(min(size, _held_bytes(fs, path) or 0) for path, size in own.items()))
    is_kept = any(f"{path}/{asked.file}" in asked.originals for path in own)
    return why_short(kept, use, limit, name, near, is_kept=is_kept)


def _held_bytes(fs: HostFS, directory: str) -> int | None:
    """What of a cgroup's memory cannot be reclaimed, memory in swap included; None: unknown."""
    files = {name: read_or_none(fs, f"{directory}/{name}") for name in cgroup_file_names(2)}
    memory = parse_cgroup_memory(2, files)
    held = None if memory is None else unreclaimable_bytes(memory)
    return None if held is None or memory is None else held + (memory.swap_bytes or 0)


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


def _machine_bytes(info: MemInfo | None) -> int | None:
    """RAM that programs can have: pages that are set aside as huge ones are nobody's otherwise."""
    if info is None or info.total_bytes is None:
        return None
    return max(0, info.total_bytes - (info.hugepages_bytes or 0))


def _meminfo(fs: HostFS) -> MemInfo | None:
    return parse_meminfo(read_or_none(fs, "/proc/meminfo"))
