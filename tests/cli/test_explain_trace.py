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
        (found,) = explain_trace(str(path), step.verdict.at_seconds - start).backends
        verdict = step.verdict
        assert [axis.value for axis in found.axes] == [verdict.phase, verdict.paging, verdict.memory]
        assert [text for axis in found.axes for text in axis.reasons] == [reason.text for reason in verdict.reasons]


def test_a_second_after_the_end() -> None:
    with pytest.raises(TraceError, match="the trace ends"):
        explain_trace(str(TRACES[0]), 1e6)
