"""Where swapped pages go, and what is wrong with that: for the tunables that depend on it, and for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moetuned.schema.swap import ActiveSwap, SwapBacking, SwapHome, SwapKind, SwapPlace, SwapStep, SwapStepKind
from moetuned.schema.units import format_bytes


def where_swap_lives(
    active: Sequence[ActiveSwap] | None,
    backings: Iterable[SwapBacking],
    planned: Sequence[SwapStep] = (),
) -> SwapHome:
    """Where swap lives once what is `planned` to be made is made. A swap of size 0 holds nothing and does not count.

    Rotational as soon as one of the disks is: one page from it takes as long as a thousand others. Mixed: zram and an SSD.
    `active` None: the kernel has no swap.
    """
    if active is None:
        return SwapHome(SwapPlace.NONE, "this kernel has no swap")
    by_name = {backing.name: backing for backing in backings}
    found = [
        by_name.get(swap.name, SwapBacking(swap.name, unknown="its disk was not looked at"))
        for swap in active
        if swap.size_bytes
    ]
    found += [_once_made(step) for step in planned if step.kind is SwapStepKind.MAKE]
    if not found:
        refused = "".join(f"; {step.name}: {step.reason}" for step in planned if step.reason)
        return SwapHome(SwapPlace.NONE, f"no swap is on{refused}")
    unknown = next((each for each in found if not each.zram and each.rotational is None), None)
    turning = [each.name for each in found if not each.zram and each.rotational]
    if turning:
        return SwapHome(SwapPlace.ROTATIONAL, f"swap is on a rotational disk: {', '.join(turning)}")
    if unknown is not None:
        return SwapHome(
            SwapPlace.UNKNOWN, f"{unknown.name}: {unknown.unknown or 'its disk does not say whether it turns'}"
        )
    in_memory = [each.name for each in found if each.zram]
    on_disk = [each.name for each in found if not each.zram]
    if not on_disk:
        return SwapHome(SwapPlace.ZRAM, f"all swap is compressed in RAM: {', '.join(in_memory)}")
    if not in_memory:
        return SwapHome(SwapPlace.SSD, f"all swap is on SSD: {', '.join(on_disk)}")
    both = f"swap is compressed in RAM ({', '.join(in_memory)}) and on SSD ({', '.join(on_disk)})"
    return SwapHome(SwapPlace.MIXED, both, _compressed_first(active, planned, in_memory))


def _once_made(step: SwapStep) -> SwapBacking:
    """A file is made only where the disk is known not to turn, or is a virtual one."""
    name = f"{step.name} (to be made)"
    if step.target is SwapKind.ZRAM:
        return SwapBacking(name, zram=True)
    if step.virtual:
        return SwapBacking(name, unknown="its virtual disk does not tell what it is on")
    return SwapBacking(name, rotational=False)


def _compressed_first(active: Sequence[ActiveSwap], planned: Sequence[SwapStep], in_memory: Sequence[str]) -> bool:
    """Whether every zram has a higher priority than every disk. What is added without a priority gets the lowest so far."""
    made = [step for step in planned if step.kind is SwapStepKind.MAKE]
    zram = [swap.priority for swap in active if swap.size_bytes and swap.name in in_memory]
    zram += [step.priority or 0 for step in made if step.target is SwapKind.ZRAM]
    disk = [swap.priority for swap in active if swap.size_bytes and swap.name not in in_memory]
    disk += [step.priority or 0 for step in made if step.target is SwapKind.FILE and step.priority is not None]
    return min(zram) > max(disk, default=-1)


def swap_warnings(
    active: Sequence[ActiveSwap] | None, backings: Iterable[SwapBacking], zswap: bool | None = None
) -> tuple[str, ...]:
    """What is wrong with the swap that is on, each a sentence with its cure."""
    by_name = {backing.name: backing for backing in backings}
    said = []
    for swap in active or ():
        backing = by_name.get(swap.name)
        if backing is not None and backing.rotational and not backing.zram:
            said.append(
                f"the swap {swap.name} ({format_bytes(swap.size_bytes)}) is on a rotational disk, where reading back one page takes "
                f"about 10 ms: swap it off (swapoff), take it out of /etc/fstab, and set tuning.swap.file to a path on an SSD"
            )
    in_memory = [swap.name for swap in active or () if swap.name in by_name and by_name[swap.name].zram]
    if in_memory and zswap:
        said.append(
            f"zswap is on in front of {in_memory[0]}, so pages are compressed twice: "
            "write N to /sys/module/zswap/parameters/enabled, or use only one of the two"
        )
    return tuple(said)
