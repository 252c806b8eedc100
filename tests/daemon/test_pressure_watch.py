"""Which memory has a PSI trigger, and what happens when the kernel says something."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest
from daemon_fakes import FakeClock

from moetuned.daemon.loop import Loop
from moetuned.daemon.pressure_watch import TRY_AGAIN_SECONDS, PressureWatch
from moetuned.daemon.watched import Watched
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.pressure_trigger import MACHINE_FILE, TriggerError
from moetuned.host.processes import ProcessIdentity

ONE, TWO = "/cg/one/memory.pressure", "/cg/two/memory.pressure"


class FakeTrigger:
    def __init__(self, path: str, window: float) -> None:
        self.path = path
        self.window_seconds = window
        self.gone = False
        self.closed = False
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        return self._read

    def stall(self) -> None:
        os.write(self._write, b"x")

    def is_gone(self) -> bool:
        os.read(self._read, 1)
        return self.gone

    def close(self) -> None:
        assert not self.closed
        self.closed = True
        os.close(self._read)
        os.close(self._write)


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock(0.0)
        self.loop = Loop(self.clock)
        self.woken = 0
        self.window = 1.0
        self.refused: set[str] = set()
        self.tried: list[str] = []
        self.triggers: dict[str, FakeTrigger] = {}
        self.watch = PressureWatch(self.loop, self.clock, self.wake, self.make)  # type: ignore[arg-type]

    def wake(self) -> None:
        self.woken += 1

    def make(self, path: str) -> FakeTrigger:
        self.tried.append(path)
        if path in self.refused:
            raise TriggerError(errno.EPERM, f"{path}: Operation not permitted")
        self.triggers[path] = FakeTrigger(path, self.window)
        return self.triggers[path]

    def open(self) -> set[str]:
        return {path for path, one in self.triggers.items() if not one.closed}


def running(name: str, version: int | None = 2) -> Watched:
    watched = Watched(name, None, 0.0)
    watched.process = ProcessIdentity(1, 1)
    watched.cgroup = MemoryCgroup(None if version is None else f"/cg/{name}", version)
    return watched


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.watch.close()
    rig.loop.close()
    assert rig.open() == set()


def test_each_backend_has_its_own_and_those_without_share_the_machines(rig: Rig) -> None:
    backends = [running("one"), running("two"), running("old", 1), running("root", None)]
    rig.watch.follow(backends)
    assert rig.open() == {ONE, TWO, MACHINE_FILE}
    assert rig.watch.active
    assert "/cg/one/memory.pressure (stalls within 1 s)" in rig.watch.text
    rig.watch.follow(backends)
    assert len(rig.tried) == 3
    backends[0].process = None
    rig.watch.follow(backends[:1])
    assert rig.open() == set()
    assert (rig.watch.active, rig.watch.text) == (False, "no backend runs")


def test_a_stall_wakes_and_is_counted(rig: Rig) -> None:
    rig.watch.follow([running("one")])
    rig.triggers[ONE].stall()
    rig.loop.run_once(0)
    assert (rig.woken, rig.watch.told) == (1, 1)
    rig.loop.run_once(0)
    assert rig.woken == 1


def test_what_is_gone_is_dropped_and_made_again(rig: Rig) -> None:
    rig.watch.follow([running("one")])
    first = rig.triggers[ONE]
    first.gone = True
    first.stall()
    rig.loop.run_once(0)
    assert (rig.woken, rig.watch.told, first.closed) == (1, 0, True)
    rig.watch.follow([running("one")])
    assert rig.open() == {ONE}


def test_a_refused_one_gives_way_to_the_machines_and_is_tried_again_later(rig: Rig) -> None:
    rig.refused.add(ONE)
    for _ in range(100):
        rig.watch.follow([running("one")])
    assert rig.tried == [ONE, MACHINE_FILE]
    assert rig.watch.active
    rig.refused.clear()
    rig.clock.now += TRY_AGAIN_SECONDS
    rig.watch.follow([running("one")])
    assert rig.open() == {ONE}


def test_with_none_at_all_it_says_why(rig: Rig) -> None:
    rig.refused |= {ONE, MACHINE_FILE}
    for _ in range(100):
        rig.watch.follow([running("one")])
    assert rig.tried == [ONE, MACHINE_FILE]
    assert not rig.watch.active
    assert "Operation not permitted" in rig.watch.text


def test_one_that_is_not_watched_makes_it_blind(rig: Rig) -> None:
    rig.refused |= {MACHINE_FILE}
    rig.watch.follow([running("one"), running("old", 1)])
    assert rig.open() == {ONE}
    assert not rig.watch.active


def test_windows_of_two_seconds_are_too_late_to_rely_on(rig: Rig) -> None:
    rig.window = 2.0
    rig.watch.follow([running("one")])
    assert not rig.watch.active
    assert "within 2 s" in rig.watch.text
