"""What swap to make: from the wish and the facts, each step with its size explained or with the reason why not. Pure."""

from __future__ import annotations

import msgspec

from moetuned.parse.swaps import zram_number
from moetuned.schema.swap import (
    HIGHEST_PRIORITY,
    OurSwap,
    Swap,
    SwapFacts,
    SwapFileFacts,
    SwapKind,
    SwapStep,
    SwapStepKind,
)
from moetuned.schema.units import format_bytes, parse_bytes

ZRAM_NAME = "swap zram"
ZRAM_PRIORITY = 100
"""Above every disk, as zram-generator and others set it."""
_NOTHING = OurSwap()
_GIB = 1 << 30
_MIB = 1 << 20
_AUTO_FILE_BYTES = (2 * _GIB, 16 * _GIB)
_AUTO_ZRAM_BYTES = 4 * _GIB
_LEAST_ZRAM_BYTES = 64 * _MIB
_LEFT_BYTES = _GIB
_FILESYSTEMS = ("ext4", "xfs", "btrfs")
_CANNOT = {
    "overlay": "an overlay file system cannot hold a swap file (a container?)",
    "zfs": "ZFS cannot hold a swap file",
    "tmpfs": "tmpfs is in memory itself",
    "ramfs": "ramfs is in memory itself",
    "nfs": "a swap file over the network can stop the machine",
    "nfs4": "a swap file over the network can stop the machine",
}
_WHY_FILE = "pages that nobody uses go there, and the page cache gets their memory for experts"
_WHY_ZRAM = "cold pages are kept in RAM at about a third of their size"


def swap_file_name(path: str) -> str:
    """The name of a swap file in views."""
    return f"swap file {path}"


def plan_swap(wish: Swap | None, facts: SwapFacts, ours: OurSwap = _NOTHING) -> tuple[SwapStep, ...]:
    """One step for each swap that is wished for: zram first, so that it takes pages from the start.

    `ours` is what moetuned made and still finds, and what of it somebody took away; a computed size is not computed anew
    for it. The wish's sizes have been checked by `parse.config_swap_check`.
    """
    if wish is None:
        return ()
    steps = []
    if wish.zram is not None:
        steps.append(_or_yielded(_plan_zram(wish, wish.zram, facts, ours), ours.zram_yielded))
    if wish.file is not None:
        steps.append(_or_yielded(_plan_file(wish, wish.file, facts, ours), ours.file_yielded))
    return tuple(steps)


def asked_for(wish: Swap | None, kind: SwapKind) -> str:
    """What the config says of one kind of swap, to be compared with what it said before; empty when it asks for none."""
    if wish is None:
        return ""
    if kind is SwapKind.ZRAM:
        return "" if wish.zram is None else f"{wish.zram}"
    return "" if wish.file is None else f"{wish.file} {wish.size} {wish.priority}"


def _or_yielded(step: SwapStep, why: str | None) -> SwapStep:
    return step if why is None else msgspec.structs.replace(step, kind=SwapStepKind.YIELDED, reason=why)


def _stays(size: str | int, held_bytes: int, computed_bytes: int | None) -> str:
    """That a computed size is not that of what is there, by more than what the room on a file system changes all the time."""
    if size != "auto" or computed_bytes is None or abs(computed_bytes - held_bytes) <= held_bytes // 8:
        return ""
    return f"; it stays {format_bytes(held_bytes)} until it is made anew"


def _plan_file(wish: Swap, path: str, facts: SwapFacts, ours: OurSwap) -> SwapStep:
    place = facts.file or SwapFileFacts(unknown="its place was not looked at")
    step = SwapStep(
        name=swap_file_name(path),
        target=SwapKind.FILE,
        kind=SwapStepKind.SKIPPED,
        wanted=_wanted(wish.size, wish.priority),
        path=path,
        priority=wish.priority,
        filesystem=place.filesystem,
        virtual=place.virtual and not place.rotational,
        asked=asked_for(wish, SwapKind.FILE),
    )
    held_bytes = ours.file_bytes if ours.file_path == path else None
    if held_bytes is not None and (wish.size == "auto" or _rounded(wish.size) == held_bytes):
        why = f"made by moetuned{_stays(wish.size, held_bytes, _computed_file(facts, place, held_bytes))}; {_WHY_FILE}"
        return _sized(step, SwapStepKind.KEEP, held_bytes, why, _file_risk(place))
    refusal = facts.refusal or _no_swap(facts) or _no_file(path, place, held_bytes is not None)
    if refusal is not None:
        return msgspec.structs.replace(step, reason=refusal)
    assert place.free_bytes is not None
    free = place.free_bytes + (held_bytes or 0)
    if wish.size == "auto":
        if facts.memory_bytes is None:
            return msgspec.structs.replace(
                step, reason="its size cannot be computed: it is not known how much RAM there is"
            )
        size, why, refusal = _auto_file(facts.memory_bytes, free)
    else:
        size = _rounded(wish.size)
        why, refusal = f"{format_bytes(size)} as tuning.swap.size says", _no_room(size, free, place.total_bytes)
    if refusal is not None:
        return msgspec.structs.replace(step, reason=refusal)
    return _sized(step, SwapStepKind.MAKE, size, f"{why}; {_WHY_FILE}", _file_risk(place))


def _computed_file(facts: SwapFacts, place: SwapFileFacts, held_bytes: int) -> int | None:
    if facts.memory_bytes is None or place.free_bytes is None:
        return None
    size, _, refusal = _auto_file(facts.memory_bytes, place.free_bytes + held_bytes)
    return size if refusal is None else None


def _no_swap(facts: SwapFacts) -> str | None:
    return "this kernel has no swap (there is no /proc/swaps)" if facts.active is None else None


def _no_file(path: str, place: SwapFileFacts, held: bool) -> str | None:
    """Why there can be no swap file of ours at this place, in the order in which a person would fix it."""
    if place.active and not held:
        return f"{path} is a swap in use that moetuned did not make; left alone"
    if place.problem is not None:
        return place.problem
    if place.taken and not held:
        return f"{path} exists and was not made by moetuned; left alone: choose another path or remove it"
    kind = place.filesystem
    if kind not in _FILESYSTEMS:
        known = "moetuned makes swap files on ext4, xfs and btrfs"
        if kind is None:
            return f"the file system of {path} is not known ({place.unknown or 'no reason given'}); {known}"
        return f"{path} is on {kind}: {_CANNOT.get(kind, 'whether it can hold a swap file is not known here')}; {known}"
    disks = ", ".join(place.disks)
    if place.rotational:
        return f"{path} is on a rotational disk ({disks}), where swap is slower than none"
    if place.rotational is None and not place.virtual:
        why = place.unknown or "no disk under it says so"
        return f"it is not known whether {path} is on an SSD: {why}"
    return f"the free room under {path} is not known" if place.free_bytes is None else None


def _auto_file(memory_bytes: int, free_bytes: int) -> tuple[int, str, str | None]:
    """Size, the sentence that explains it, and why not.

    What a desktop or server keeps in memory and does not touch is seldom more than a quarter of its RAM; beyond 16 GiB
    swapping out takes longer than the pressure lasts, below 2 GiB it does not change how much of a model is resident.
    """
    least, most = _AUTO_FILE_BYTES
    from_memory = min(max(memory_bytes // 4, least), most)
    size = min(from_memory, free_bytes // 10) // _MIB * _MIB
    free, memory = format_bytes(free_bytes), format_bytes(memory_bytes)
    if size < least:
        why = (
            f"not enough room: a tenth of the {free} free is less than {format_bytes(least)}, the least that helps; "
            "free some, or set tuning.swap.size"
        )
        return size, "", why
    if size < from_memory // _MIB * _MIB:
        return size, f"{format_bytes(size)}: a tenth of the {free} free, as a quarter of RAM would take more", None
    return size, f"{format_bytes(size)}: a quarter of {memory} RAM, within 2 GiB and 16 GiB", None


def _no_room(size: int, free_bytes: int, total_bytes: int | None) -> str | None:
    left = max(_LEFT_BYTES, (total_bytes or 0) // 20)
    if free_bytes - size >= left:
        return None
    return (
        f"not enough room: {format_bytes(size)} of the {format_bytes(free_bytes)} free would leave less than {format_bytes(left)} "
        "(a twentieth of the file system, at least 1 GiB)"
    )


def _file_risk(place: SwapFileFacts) -> str:
    risk = "what is swapped out must be read back before it can be used, and the SSD wears by what is written"
    if place.virtual:
        risk += "; its virtual disk does not tell what it is on: on a rotational disk, this swap is slower than none"
    if place.filesystem == "btrfs":
        return f"{risk}; while it is on, its subvolume cannot be snapshotted and its btrfs not be balanced onto other devices"
    return risk


def _plan_zram(wish: Swap, size: str | int, facts: SwapFacts, ours: OurSwap) -> SwapStep:
    priority = min(HIGHEST_PRIORITY, max(ZRAM_PRIORITY, (wish.priority or 0) + 1)) if wish.file else ZRAM_PRIORITY
    step = SwapStep(
        name=ZRAM_NAME,
        target=SwapKind.ZRAM,
        kind=SwapStepKind.SKIPPED,
        wanted=_wanted(size, priority),
        priority=priority,
        asked=asked_for(wish, SwapKind.ZRAM),
    )
    held = ours.zram_bytes
    if held is not None and (size == "auto" or _rounded(size) == held):
        computed = None if facts.memory_bytes is None else _auto_zram_bytes(facts.memory_bytes)
        why = f"made by moetuned{_stays(size, held, computed)}; {_WHY_ZRAM}"
        return _sized(step, SwapStepKind.KEEP, held, why, _zram_risk(held))
    refusal = facts.refusal or _no_swap(facts)
    if refusal is not None:
        return msgspec.structs.replace(step, reason=refusal)
    for swap in facts.active or ():
        number = zram_number(swap)
        if number is not None and number != ours.zram_number:
            told = f"{swap.name} ({format_bytes(swap.size_bytes)}) is on already and not moetuned's; left alone"
            return msgspec.structs.replace(step, kind=SwapStepKind.ALREADY, reason=told)
    if facts.zram_refusal is not None:
        return msgspec.structs.replace(step, reason=facts.zram_refusal)
    if facts.memory_bytes is None:
        return msgspec.structs.replace(step, reason="it is not known how much RAM there is")
    memory = format_bytes(facts.memory_bytes)
    if size == "auto":
        count = _auto_zram_bytes(facts.memory_bytes)
        why = f"{format_bytes(count)}: an eighth of {memory} RAM, at most 4 GiB, as every byte it takes is lost to experts"
        if count < _LEAST_ZRAM_BYTES:
            return msgspec.structs.replace(step, reason=f"too little RAM: an eighth of {memory} is not worth it")
    else:
        count = _rounded(size)
        why = f"{format_bytes(count)} as tuning.swap.zram says"
        if count > facts.memory_bytes:
            reason = f"{format_bytes(count)} is more than the {memory} of RAM it would have to be kept in"
            return msgspec.structs.replace(step, reason=reason)
    return _sized(step, SwapStepKind.MAKE, count, f"{why}; {_WHY_ZRAM}", _zram_risk(count))


def _auto_zram_bytes(memory_bytes: int) -> int:
    return min(memory_bytes // 8, _AUTO_ZRAM_BYTES) // _MIB * _MIB


def _zram_risk(size: int) -> str:
    return (
        f"full, it takes {format_bytes(size / 3)} of RAM at 3:1 and all of {format_bytes(size)} when nothing can be "
        "compressed; packing costs CPU"
    )


def _sized(step: SwapStep, kind: SwapStepKind, size: int, why: str, risk: str) -> SwapStep:
    wanted = _wanted(size, step.priority)
    return msgspec.structs.replace(step, kind=kind, size_bytes=size, wanted=wanted, why=why, risk=risk)


def _wanted(size: str | int, priority: int | None) -> str:
    text = size if size == "auto" else format_bytes(parse_bytes(size))
    return f"{text}" if priority is None else f"{text}, priority {priority}"


def _rounded(size: str | int) -> int:
    """Whole MiB, so that no page size leaves a rest."""
    return parse_bytes(size) // _MIB * _MIB
