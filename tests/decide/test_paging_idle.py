"""A model that is pushed out while nothing is asked of it stays cold until a newer scan finds it in memory again."""

from __future__ import annotations

import pytest
from detector_scenes import FACTS, IDLE, QUIET, Walk, backend
from hypothesis import given
from hypothesis import strategies as st

from moetuned.schema.verdict import Paging

SIZE = FACTS.model_bytes or 0


def scanned(ratio: float | None) -> dict[str, float | None]:
    return {"resident_ratio": ratio}


def part(ratio: float) -> int:
    return int(ratio * SIZE)


def worked() -> Walk:
    walk = Walk()
    walk.go(10, {**QUIET, **scanned(1.0)}, backend(rss_file=SIZE))
    walk.go(1, scanned(1.0), backend(IDLE, rss_file=SIZE, resident=SIZE))
    return walk


def test_a_scan_older_than_the_loss_does_not_make_it_steady() -> None:
    walk = worked()
    for _ in range(30):
        verdict = walk.go(1, scanned(1.0), backend(IDLE, rss_file=part(0.43))).verdict
        assert verdict.paging is Paging.COLD
    assert "57 % of the model left the page cache" in " ".join(reason.text for reason in verdict.reasons)
    assert walk.events == [(12.0, "cache_evicted")]


def test_a_scan_that_shows_the_loss_keeps_it_cold_also_when_it_is_too_old_to_be_told() -> None:
    walk = worked()
    walk.go(2, scanned(1.0), backend(IDLE, rss_file=part(0.43)))
    assert (
        walk.go(1, scanned(0.43), backend(IDLE, rss_file=part(0.43), resident=part(0.43))).verdict.paging is Paging.COLD
    )
    assert walk.go(40, scanned(None), backend(IDLE, rss_file=part(0.43))).verdict.paging is Paging.COLD
    assert walk.names() == ["cache_evicted"]


def test_partly_back_is_still_cold() -> None:
    walk = worked()
    walk.go(2, scanned(0.4), backend(IDLE, rss_file=part(0.4), resident=part(0.4)))
    verdict = walk.go(5, scanned(0.8), backend(IDLE, rss_file=part(0.4), resident=part(0.8))).verdict
    assert verdict.paging is Paging.COLD
    assert "pushed out of memory, and 80 % of it is resident" in " ".join(reason.text for reason in verdict.reasons)


def test_warm_again_it_is_steady_and_the_next_eviction_is_told() -> None:
    walk = worked()
    walk.go(5, scanned(1.0), backend(IDLE, rss_file=part(0.43)))
    # Who warms it maps nothing into the backend.
    assert walk.go(1, scanned(1.0), backend(IDLE, rss_file=part(0.43), resident=SIZE)).verdict.paging is Paging.STEADY
    assert walk.go(20, scanned(1.0), backend(IDLE, rss_file=part(0.43))).verdict.paging is Paging.STEADY
    assert walk.go(2, scanned(0.2), backend(IDLE, rss_file=part(0.1), resident=part(0.2))).verdict.paging is Paging.COLD
    assert walk.names() == ["cache_evicted", "cache_evicted"]


def test_what_is_resident_is_not_lost_however_little_is_mapped() -> None:
    walk = worked()
    walk.go(20, scanned(1.0), backend(IDLE, rss_file=0, resident=SIZE))
    assert walk.events == []


@given(st.lists(st.tuples(st.floats(0, 1), st.one_of(st.none(), st.floats(0, 1))), min_size=1, max_size=20))
def test_never_steady_while_a_quarter_is_gone_by_the_newest_figures(seconds: list[tuple[float, float | None]]) -> None:
    walk, newest, mapped_then = worked(), 1.0, 1.0
    for mapped, scan in seconds:
        if scan is not None:
            newest, mapped_then = scan, mapped
        resident = None if scan is None else part(scan)
        verdict = walk.go(1, scanned(newest), backend(IDLE, rss_file=part(mapped), resident=resident)).verdict
        if newest - max(0.0, mapped_then - mapped) < 0.74:
            assert verdict.paging is Paging.COLD


@pytest.mark.parametrize("rss_file", [None, SIZE])
def test_where_nothing_left_it_stays_steady(rss_file: int | None) -> None:
    walk = Walk()
    walk.go(10, QUIET, backend(rss_file=rss_file))
    assert walk.go(60, scanned(None), backend(IDLE, rss_file=rss_file)).verdict.paging is Paging.STEADY
