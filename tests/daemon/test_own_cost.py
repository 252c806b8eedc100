"""The daemon's own cost."""

from __future__ import annotations

import os

from moetuned.daemon.own_cost import SELDOM_TICKS, OwnCost, own_open_files, own_rss_bytes


def test_a_tick_is_measured() -> None:
    cost = OwnCost()
    cost.begin()
    sum(range(100_000))
    cost.end(0.5)
    assert (cost.ticks, cost.tick_seconds) == (1, 0.5)
    assert cost.tick_cpu_seconds is not None
    assert 0 < cost.tick_cpu_seconds <= cost.cpu_seconds
    assert cost.rss_bytes is not None
    assert cost.rss_bytes > 1 << 20


def test_files_are_counted_now_and_then() -> None:
    cost = OwnCost()
    cost.begin()
    cost.end(0.0)
    files = cost.open_files
    assert files is not None
    descriptor = os.open("/dev/null", os.O_RDONLY)
    try:
        assert own_open_files() == files + 1
        for _ in range(SELDOM_TICKS - 1):
            cost.end(0.0)
        assert cost.open_files == files
        cost.end(0.0)
        assert cost.open_files == files + 1
    finally:
        os.close(descriptor)


def test_resident_memory_is_a_whole_number_of_pages() -> None:
    rss = own_rss_bytes()
    assert rss is not None
    assert rss % os.sysconf("SC_PAGE_SIZE") == 0
