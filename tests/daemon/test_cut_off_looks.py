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
    taken = FakeTaken([0, 3, 1])
    monkeypatch.setattr(cut_off_looks, "TakenConnections", lambda _pid: taken)
    return taken


def test_each_look_counts_from_the_one_before(taken: FakeTaken) -> None:
    looks = CutOffLooks()
    looks.connections = lambda: 0
    state = looks.begin(ends(), Process())  # type: ignore[arg-type]
    assert state.cut_off == NONE
    for expected in (NONE, CutOff(None, 3)):
        state = looks.look(state)
        assert state.cut_off == expected, "who listens still may have dropped what came meanwhile"
    state = looks.end(state)
    assert (state.cut_off, taken.closed) == (CutOff(None, 4), True)
    assert looks.end(state) == looks.look(state) == state, "it is over"


def test_what_does_not_end_is_not_looked_at_any_more(taken: FakeTaken) -> None:
    looks = CutOffLooks()
    state = looks.begin(ends(), Process())  # type: ignore[arg-type]
    assert state.cut_off == UNKNOWN
    looks.forget()
    assert taken.closed
    assert looks.look(state) == looks.end(state) == state


def test_without_a_process_nothing_is_followed() -> None:
    looks = CutOffLooks()
    looks.connections = lambda: 2
    state = looks.begin(ends(), None)
    assert state.cut_off == CutOff(None, 2)
    assert looks.end(state) == state
