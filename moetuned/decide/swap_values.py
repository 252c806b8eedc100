"""Values of settings that depend on where swap lives. Pure."""

from __future__ import annotations

import re

import msgspec

from moetuned.schema.config import Profile
from moetuned.schema.swap import SwapHome, SwapPlace

ROTATIONAL_SWAPPINESS = 10
"""A page read back from a disk that turns takes about 10 ms, as long as many reads of a model on an SSD: swap only idle memory."""
KERNEL_SWAPPINESS = 60
"""The kernel's own default: swap and the model's files cost about the same to read from SSD, and files are easier to drop."""
ZRAM_SWAPPINESS = 133
"""Swap taken as twice as fast as the file system: x + 2x = 200, 2x = 133 (Documentation/admin-guide/sysctl/vm.rst, swappiness)."""
_RELEASE = re.compile(r"(\d{1,4})\.(\d{1,4})")
_BEYOND_100_SINCE = (5, 8)


class Choice(msgspec.Struct, frozen=True):
    """`values`: by profile. `because`: one sentence on where they come from; `skip`: why the profile sets none here."""

    values: dict[str, str]
    because: str = ""
    skip: str | None = None


def highest_swappiness(release: str) -> int:
    """The highest vm.swappiness that a kernel of this release (`6.1.0-28-amd64`) takes: 200, 100 before 5.8; 200 when unknown.

    Source: commit c843966c556d of the kernel.
    """
    found = _RELEASE.match(release)
    return 100 if found is not None and (int(found[1]), int(found[2])) < _BEYOND_100_SINCE else 200


DEPENDENT = ("vm.swappiness", "vm.page-cluster")
"""Names of the settings whose values come from here."""


def swappiness(home: SwapHome, profile: str | None, highest: int = 200) -> Choice:
    """vm.swappiness for each profile, for the swap that is on or is about to be made. `profile`: the one that is planned."""
    in_memory = str(min(ZRAM_SWAPPINESS, highest))
    twice = "in compressed RAM it is taken as twice as fast as the file system, which the kernel's formula makes 133"
    if highest < ZRAM_SWAPPINESS:
        twice += f", and this kernel takes no more than {highest}"
    by_place = {
        SwapPlace.ROTATIONAL: (
            str(ROTATIONAL_SWAPPINESS),
            "a page from it takes about 10 ms, so only idle memory goes",
        ),
        SwapPlace.SSD: (str(KERNEL_SWAPPINESS), "the kernel's default weighs swap and files alike there"),
        SwapPlace.ZRAM: (in_memory, twice),
    }
    value, why = by_place.get(home.place, (str(KERNEL_SWAPPINESS), ""))
    if _compressed_first(home, profile):
        return Choice(_for_both(in_memory), f"{home.reason}, and compressed RAM is filled first; {twice}")
    values = _for_both(value)
    if home.place is SwapPlace.NONE:
        return Choice(values, skip=f"{home.reason}, so it has no effect")
    if home.place not in by_place:
        return Choice(values, skip=f"{home.reason}, and no one value is right for that")
    return Choice(values, f"{home.reason}; {why}")


def page_cluster(home: SwapHome, profile: str | None) -> Choice:
    """vm.page-cluster for each profile: 0 where all swap is compressed in RAM."""
    values = _for_both("0")
    why = "there is nothing to seek, so what is read along is decompressed in vain"
    if _compressed_first(home, profile):
        return Choice(values, f"{home.reason}, and compressed RAM is filled first; {why}")
    if home.place is SwapPlace.ZRAM:
        return Choice(values, f"{home.reason}; {why}")
    if home.place is SwapPlace.NONE:
        return Choice(values, skip=f"{home.reason}, so it has no effect")
    return Choice(
        values, skip=f"{home.reason}; only where all swap is compressed in RAM nothing is gained by reading along"
    )


def _compressed_first(home: SwapHome, profile: str | None) -> bool:
    """Whether the profile that chose zram also has it in use before the disk."""
    return profile == Profile.MOE_OFFLOAD_ZRAM.value and home.place is SwapPlace.MIXED and home.compressed_first


def _for_both(value: str) -> dict[str, str]:
    return {Profile.MOE_OFFLOAD.value: value, Profile.MOE_OFFLOAD_ZRAM.value: value}
