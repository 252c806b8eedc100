"""Looks from right before a process is told to end until it has ended."""

from __future__ import annotations

import msgspec
import pytest
from supervisor_rig import SHORT, FakeTaken

from moetuned.daemon import cut_off_looks
from moetuned.daemon.cut_off_looks import CutOffLooks
from moetuned.decide import supervision as sv
from moetuned.decide.cutting_off import NONE, UNKNOWN, CutOff
from moetuned.host.processes import ProcessIdentity


class Process:
    identity = ProcessIdentity(7, 1)


def ends() -> sv.Supervision:
    return msgspec.structs.replace(
        sv.Supervision("glm", SHORT), stage=sv.Stage.STOPPING, next_plan=SHORT, cut_off=CutOff(0)
    )


@pytest.fixture(name="taken")
def takes(monkeypatch: pytest.MonkeyPatch) -> FakeTaken:
    taken = FakeTaken(3)
    monkeypatch.setattr(cut_off_looks, "TakenConnections", lambda _pid: taken)
    return taken


def test_what_came_until_it_had_ended_counts(taken: FakeTaken) -> None:
    looks = CutOffLooks()
    looks.connections = lambda: 1
    state = looks.begin(ends(), Process())  # type: ignore[arg-type]
    assert state.cut_off == CutOff(None, 1)
    state = looks.end(state)
    assert (state.cut_off, taken.closed) == (CutOff(None, 4), True)
    assert looks.end(state) == state, "it is over"


def test_what_does_not_end_is_not_looked_at_any_more(taken: FakeTaken) -> None:
    looks = CutOffLooks()
    state = looks.begin(ends(), Process())  # type: ignore[arg-type]
    assert state.cut_off == UNKNOWN
    looks.forget()
    assert taken.closed
    assert looks.end(state) == state


def test_one_that_does_not_listen_yet_was_asked_for_nothing() -> None:
    looks = CutOffLooks()
    assert looks.begin(ends(), None, new=True).cut_off == NONE
    assert looks.begin(ends(), None).cut_off == UNKNOWN


def test_what_an_earlier_daemon_had_told_to_end_is_not_known_once() -> None:
    looks = CutOffLooks()
    looks.connections = lambda: 0
    looks.uncounted = True
    assert looks.begin(ends(), None).cut_off == UNKNOWN
    assert looks.begin(ends(), None).cut_off == NONE


def test_without_a_process_nothing_is_followed() -> None:
    looks = CutOffLooks()
    looks.connections = lambda: 2
    state = looks.begin(ends(), None)
    assert state.cut_off == CutOff(None, 2)
    assert looks.end(state) == state
