"""How much a swap holds, and whether memory, of the machine and of each memory cgroup, could take it back."""

from __future__ import annotations

import os
from collections.abc import Iterator

from moetuned.host.active_swaps import is_same_file, read_swaps
from moetuned.host.cgroup import writable_hierarchy
from moetuned.host.fs import HostFS, RealFS, read_or_none
from moetuned.parse.cgroup_memory import cgroup_file_names, parse_cgroup_memory
from moetuned.parse.meminfo import parse_meminfo
from moetuned.parse.swaps import zram_number
from moetuned.schema.sample import CgroupMemory
from moetuned.schema.swap import ActiveSwap, SwapOffRoom
from moetuned.schema.units import format_bytes

_REAL = RealFS()
_MOST_CGROUPS = 10000
_ZRAM = "/dev/zram"


def used_bytes(path: str, fs: HostFS = _REAL) -> int | None:
    """What the swap on the file or zram device at `path` holds; 0 when it is not on, None when it cannot be told.

    A file that the list has under another name (another mount namespace) is taken to be any of those with its size: the most
    it can be. Raises OSError.
    """
    active = read_swaps(fs) or ()
    if path.startswith(_ZRAM):
        number = path.removeprefix(_ZRAM)
        return sum(swap.used_bytes for swap in active if str(zram_number(swap)) == number)
    exact = [swap for swap in active if is_same_file(swap, path)]
    if exact:
        return exact[0].used_bytes
    unplaced = [swap for swap in active if swap.kind == "file" and _may_be(swap, path)]
    return sum(swap.used_bytes for swap in unplaced) if unplaced else None


def read_room(path: str, fs: HostFS = _REAL) -> SwapOffRoom:
    """What swapping off `path` needs and what there is. Never raises; what cannot be read is None."""
    try:
        used = used_bytes(path, fs)
        meminfo = parse_meminfo(fs.read_text("/proc/meminfo"))
    except OSError:
        return SwapOffRoom(None, None, None)
    if meminfo is None:
        return SwapOffRoom(used, None, None)
    tight = () if used == 0 else tuple(tight_cgroups(fs))
    return SwapOffRoom(used, meminfo.available_bytes, meminfo.total_bytes, tight)


def tight_cgroups(fs: HostFS = _REAL) -> Iterator[str]:
    """Memory cgroups that could not take back all of their own that is swapped out, each as part of a sentence."""
    hierarchy = writable_hierarchy(fs)
    if hierarchy is None:
        return
    for count, (directory, _, _) in enumerate(os.walk(hierarchy.directory)):
        if count >= _MOST_CGROUPS:
            yield f"there are more than {_MOST_CGROUPS} memory cgroups, too many to look at"
            return
        names = cgroup_file_names(hierarchy.version)
        memory = parse_cgroup_memory(
            hierarchy.version, {name: read_or_none(fs, f"{directory}/{name}") for name in names}
        )
        why = None if memory is None else why_tight(memory)
        if why is not None:
            yield f"the cgroup {directory} {why}"


def why_tight(memory: CgroupMemory) -> str | None:
    """Why a cgroup could not take back what it has swapped out; None when it can, has none out, or has no limit."""
    swapped, limit, current = memory.swap_bytes, memory.limit_bytes, memory.current_bytes
    if not swapped or limit is None:
        return None
    if current is None:
        return f"has {format_bytes(swapped)} swapped out and does not say how much it has in memory"
    kept = max(0, current - (memory.reclaimable_file_bytes or 0))
    # A 64th for what is allocated meanwhile.
    if kept + swapped + limit // 64 <= limit:
        return None
    return (
        f"has {format_bytes(swapped)} swapped out, {format_bytes(kept)} in memory that cannot be dropped, and a limit of "
        f"{format_bytes(limit)}"
    )


def _may_be(swap: ActiveSwap, path: str) -> bool:
    try:
        return 0 <= os.stat(path).st_size - swap.size_bytes <= 65536
    except OSError:
        return True
