"""When looks happen: on a grid, sooner when asked, never in a burst."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from daemon_fakes import FakeClock

from moetuned.daemon.loop import Loop
from moetuned.daemon.tick_timer import TickTimer


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock(100.0)
        self.loop = Loop(self.clock)
        self.timer = TickTimer(self.loop, self.clock, self.tick)
        self.interval = 1.0
        self.looks: list[float] = []
        self.late: list[float] = []
        self.since: list[float] = []
        self.takes = 0.0

    def tick(self) -> None:
        late, since = self.timer.begin(self.clock.now)
        self.looks.append(self.clock.now)
        self.late.append(late)
        self.since.append(since)
        self.clock.now += self.takes
        self.timer.next(self.interval)

    def run(self, until: float, step: float = 0.0625) -> None:
        while self.clock.now < until:
            self.clock.now += step
            self.loop.run_once(0)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.tick()
    yield rig
    rig.loop.close()


def test_a_fixed_grid_with_its_lateness(rig: Rig) -> None:
    rig.run(103.0)
    assert rig.looks == [100.0, 101.0, 102.0, 103.0]
    assert rig.since == [0.0, 1.0, 1.0, 1.0]
    rig.clock.now = 103.75
    rig.run(104.5, step=0.75)
    assert (rig.looks[-1], rig.late[-1]) == (104.5, 0.5)
    rig.run(105.0)
    assert rig.looks[-1] == 105.0


def test_what_was_missed_is_not_made_up_for(rig: Rig) -> None:
    rig.clock.now = 110.0
    rig.loop.run_once(0)
    rig.run(110.5)
    assert len([at for at in rig.looks if at >= 110.0]) <= 5
    rig.takes = 3.0
    rig.run(150.0)
    assert len([at for at in rig.looks if at >= 111.0]) <= 14


def test_sooner_is_at_once_but_not_twice_in_a_quarter_of_a_second(rig: Rig) -> None:
    rig.interval = 4.0
    rig.run(102.0)
    for _ in range(1000):
        rig.timer.sooner()
    rig.loop.run_once(0)
    assert rig.looks == [100.0, 101.0, 102.0]
    assert rig.late[-1] == 0.0
    for _ in range(16):
        rig.timer.sooner()
        rig.run(rig.clock.now + 0.0625)
    assert [at - rig.looks[2] for at in rig.looks[3:]] == [0.25, 0.5, 0.75, 1.0]
    rig.run(106.9)
    assert rig.looks[-1] == 103.0  # the next is a whole interval after the last
    rig.run(107.0)
    assert rig.looks[-1] == 107.0


def test_sooner_changes_nothing_where_the_next_look_is_soon_anyway(rig: Rig) -> None:
    rig.interval = 0.2
    rig.run(101.0)
    due = rig.timer.due
    rig.clock.now = due - 0.01
    rig.timer.sooner()
    assert rig.timer.due == due
