"""The machine's clocks: each is the one it says."""

from __future__ import annotations

import time

from moetuned.host.clock import Clock, RealClock


def test_each_clock_is_the_one_it_says() -> None:
    clock: Clock = RealClock()
    for ours, its in ((clock.monotonic, time.CLOCK_MONOTONIC), (clock.wall, time.CLOCK_REALTIME)):
        before = time.clock_gettime(its)
        now = ours()
        assert before <= now <= time.clock_gettime(its)
