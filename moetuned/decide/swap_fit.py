"""Whether what a swap holds would fit into memory if it were swapped off. Pure."""

from __future__ import annotations

from moetuned.schema.swap import SwapOffRoom
from moetuned.schema.units import format_bytes

_LEAST_RESERVE_BYTES = 256 << 20


def reserve_bytes(memory_bytes: int) -> int:
    """What must stay available after swapping off: a 32nd of RAM and at least 256 MiB.

    MemAvailable is an estimate (si_mem_available in mm/show_mem.c): it counts half of the page cache up to the low
    watermarks as not to be had, and nothing of what is allocated meanwhile.
    """
    return max(_LEAST_RESERVE_BYTES, memory_bytes // 32)


def why_not_off(name: str, room: SwapOffRoom) -> str | None:
    """Why `name` is not swapped off, a sentence with the cure; None when what it holds fits.

    Pages come back to the memory cgroup they were swapped out of, and a cgroup that cannot take them has its processes killed
    while the rest of the machine has memory free (measured; mem_cgroup_swapin_charge_folio in mm/memcontrol.c).
    """
    if room.used_bytes == 0:
        return None
    if room.used_bytes is None or room.available_bytes is None or room.memory_bytes is None:
        return f"{name} is kept on: it is not known whether what it holds fits into memory"
    reserve = reserve_bytes(room.memory_bytes)
    if room.used_bytes + reserve >= room.available_bytes:
        return (
            f"{name} is kept on: it holds {format_bytes(room.used_bytes)}, and with a reserve of {format_bytes(reserve)} that does not "
            f"fit into the {format_bytes(room.available_bytes)} available; end a program that takes memory, then roll back again"
        )
    if room.tight:
        return (
            f"{name} is kept on: swapping off would let the kernel kill processes, {room.tight[0]}; "
            "raise its limit or end what runs in it, then roll back again"
        )
    return None
