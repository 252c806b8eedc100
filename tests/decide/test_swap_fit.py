from __future__ import annotations

import pytest

from moetuned.decide.swap_fit import reserve_bytes, why_not_off
from moetuned.schema.swap import SwapOffRoom

GIB = 1 << 30


def room(used: int | None, available: int | None, tight: tuple[str, ...] = ()) -> SwapOffRoom:
    return SwapOffRoom(used, available, 32 * GIB, tight)


def test_the_reserve() -> None:
    assert reserve_bytes(64 * GIB) == 2 * GIB
    assert reserve_bytes(4 * GIB) == 256 << 20


def test_what_holds_nothing_may_always_be_swapped_off() -> None:
    assert why_not_off("x", SwapOffRoom(0, None, None, ("a tight cgroup",))) is None


@pytest.mark.parametrize("used", [1, 4 * GIB, 7 * GIB - 1])
def test_what_fits_with_the_reserve(used: int) -> None:
    assert why_not_off("x", room(used, 8 * GIB)) is None


def test_what_does_not_fit_is_kept_with_the_figures_and_a_cure() -> None:
    why = why_not_off("swap zram", room(7 * GIB, 8 * GIB))
    assert why is not None
    assert why.startswith("swap zram is kept on: it holds 7.0 GiB, and with a reserve of 1.0 GiB")
    assert "8.0 GiB available; end a program" in why


@pytest.mark.parametrize("unknown", [room(None, 8 * GIB), room(1, None), SwapOffRoom(1, GIB, None)])
def test_unknown_does_not_fit(unknown: SwapOffRoom) -> None:
    assert "not known" in (why_not_off("x", unknown) or "")


def test_a_cgroup_that_could_not_take_its_pages_back() -> None:
    why = why_not_off("x", room(GIB, 30 * GIB, ("the cgroup /a has too much", "another")))
    assert why is not None
    assert "the cgroup /a has too much; raise its limit" in why
