from __future__ import annotations

from typing import Any

import pytest

from moetuned.decide.swap_home import swap_warnings, where_swap_lives
from moetuned.schema.swap import ActiveSwap, SwapBacking, SwapKind, SwapPlace, SwapStep, SwapStepKind

GIB = 1 << 30
SSD = SwapBacking("/swapfile", rotational=False)
DISK = SwapBacking("/dev/sda2", rotational=True)
ZRAM = SwapBacking("/dev/zram0", zram=True)
DARK = SwapBacking("/swap2", unknown="it is on ZFS")


def on(*backings: SwapBacking) -> tuple[ActiveSwap, ...]:
    return tuple(ActiveSwap(each.name, "file", GIB, 0, -2) for each in backings)


@pytest.mark.parametrize(
    ("backings", "place", "reason"),
    [
        ((), SwapPlace.NONE, "no swap is on"),
        ((SSD,), SwapPlace.SSD, "/swapfile"),
        ((ZRAM,), SwapPlace.ZRAM, "/dev/zram0"),
        ((ZRAM, SSD), SwapPlace.MIXED, "(/dev/zram0) and on SSD (/swapfile)"),
        ((DISK,), SwapPlace.ROTATIONAL, "/dev/sda2"),
        ((SSD, DISK, ZRAM), SwapPlace.ROTATIONAL, "/dev/sda2"),
        ((DARK, DISK), SwapPlace.ROTATIONAL, "/dev/sda2"),
        ((ZRAM, DARK), SwapPlace.UNKNOWN, "/swap2: it is on ZFS"),
    ],
)
def test_where_it_lives(backings: tuple[SwapBacking, ...], place: SwapPlace, reason: str) -> None:
    home = where_swap_lives(on(*backings), backings)
    assert home.place is place
    assert reason in home.reason


def test_a_kernel_without_swap() -> None:
    assert where_swap_lives(None, ()).reason == "this kernel has no swap"


def test_a_swap_that_nobody_looked_at_is_unknown() -> None:
    assert where_swap_lives(on(SSD), ()).place is SwapPlace.UNKNOWN


def test_warnings_come_with_a_cure() -> None:
    (said,) = swap_warnings(on(SSD, DISK, ZRAM, DARK), (SSD, DISK, ZRAM, DARK))
    assert said.startswith("the swap /dev/sda2 (1.0 GiB) is on a rotational disk")
    assert "tuning.swap.file" in said
    assert swap_warnings(None, ()) == ()


def test_zswap_before_zram_is_a_warning() -> None:
    (said,) = swap_warnings(on(ZRAM), (ZRAM,), zswap=True)
    assert "compressed twice" in said
    assert swap_warnings(on(SSD), (SSD,), zswap=True) == ()


def planned(target: SwapKind, kind: SwapStepKind = SwapStepKind.MAKE, **more: Any) -> SwapStep:
    return SwapStep(f"swap {target.value}", target, kind, "auto", **more)


@pytest.mark.parametrize(
    ("active", "steps", "place", "first"),
    [
        ((), (planned(SwapKind.ZRAM, priority=100),), SwapPlace.ZRAM, False),
        ((), (planned(SwapKind.FILE),), SwapPlace.SSD, False),
        ((), (planned(SwapKind.FILE, virtual=True),), SwapPlace.UNKNOWN, False),
        ((SSD,), (planned(SwapKind.ZRAM, priority=100),), SwapPlace.MIXED, True),
        ((ZRAM,), (planned(SwapKind.FILE),), SwapPlace.MIXED, False),
        ((), (planned(SwapKind.ZRAM, priority=100), planned(SwapKind.FILE)), SwapPlace.MIXED, True),
        ((), (planned(SwapKind.ZRAM, priority=100), planned(SwapKind.FILE, priority=200)), SwapPlace.MIXED, False),
        ((DISK,), (planned(SwapKind.ZRAM, priority=100),), SwapPlace.ROTATIONAL, False),
        ((SSD,), (planned(SwapKind.ZRAM, SwapStepKind.SKIPPED, reason="no zram"),), SwapPlace.SSD, False),
        ((), (planned(SwapKind.ZRAM, SwapStepKind.SKIPPED, reason="no zram"),), SwapPlace.NONE, False),
    ],
)
def test_where_it_will_live(
    active: tuple[SwapBacking, ...], steps: tuple[SwapStep, ...], place: SwapPlace, first: bool
) -> None:
    home = where_swap_lives(on(*active), active, steps)
    assert (home.place, home.compressed_first) == (place, first)
    assert place is not SwapPlace.NONE or home.reason == "no swap is on; swap zram: no zram"
