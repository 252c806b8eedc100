from __future__ import annotations

import pathlib

import pytest

from moetuned.cli.explain_trace import explain_trace
from moetuned.cli.replay import replay
from moetuned.decide.detector import DetectorSettings
from moetuned.state.trace import TraceError, read_trace

TRACES = sorted((pathlib.Path(__file__).parent.parent / "data" / "traces").glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_it_explains_what_replay_says(path: pathlib.Path) -> None:
    steps = [followed.step for followed in replay(read_trace(str(path)), DetectorSettings())]
    start = steps[0].verdict.at_seconds
    for step in steps[:: max(1, len(steps) // 4)]:
        explanations, fault = explain_trace(str(path), step.verdict.at_seconds - start)
        (found,) = explanations.backends
        verdict = step.verdict
        assert fault is None
        assert [axis.value for axis in found.axes] == [verdict.phase, verdict.paging, verdict.memory]
        assert [text for axis in found.axes for text in axis.reasons] == [reason.text for reason in verdict.reasons]


def test_a_second_after_the_end() -> None:
    with pytest.raises(TraceError, match="the trace ends"):
        explain_trace(str(TRACES[0]), 1e6)


def test_a_recording_that_was_killed(tmp_path: pathlib.Path) -> None:
    """It ends in the middle of a compressed block: all whole lines before it can be explained."""
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(TRACES[0].read_bytes()[:-2000])
    steps = replay(read_trace(str(cut)), DetectorSettings())
    last, damage = 0.0, ""
    try:
        for followed in steps:
            last = followed.step.verdict.at_seconds
    except TraceError as error:
        damage = str(error)
    found, fault = explain_trace(str(cut), None)
    assert found.backends[0].at_seconds == last
    assert "cut or damaged" in damage
    assert str(fault) == damage


def test_a_trace_that_is_damaged_before_the_second_that_is_asked_for(tmp_path: pathlib.Path) -> None:
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(TRACES[0].read_bytes()[:-2000])
    with pytest.raises(TraceError, match="cut or damaged"):
        explain_trace(str(cut), 1e6)
