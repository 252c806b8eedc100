"""Recorded seconds of a real llama-server, each with the truth beside it, through parsers, signals and detector."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from click.testing import CliRunner
from trace_truth import FAILS_TODAY, Said, faults

from moetuned.cli.replay import command

TRACES = pathlib.Path(__file__).parent / "data" / "traces"


def said(trace: pathlib.Path) -> list[Said]:
    from moetuned.state.trace import read_trace

    first = next(iter(read_trace(str(trace)).samples))
    result = CliRunner().invoke(command, [str(trace), "--json"])
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = [json.loads(line) for line in result.output.splitlines()]
    return [Said(row["t"] + first.wall - first.t, row, row["events"]) for row in rows]


def test_there_are_traces() -> None:
    assert len(list(TRACES.glob("*.jsonl.gz"))) >= 7


def traces() -> Iterator[ParameterSet]:
    for path in sorted(TRACES.glob("*.jsonl.gz")):
        name = path.name.split(".")[0]
        marks = [pytest.mark.xfail(reason=FAILS_TODAY[name], strict=True)] if name in FAILS_TODAY else []
        yield pytest.param(path, id=name, marks=marks)


@pytest.mark.parametrize("trace", list(traces()))
def test_verdicts_agree_with_what_was_done(trace: pathlib.Path) -> None:
    truth = json.loads((TRACES / trace.name.replace(".jsonl.gz", ".truth.json")).read_text())
    assert faults(truth, said(trace)) == []


def one(wall: float, paging: str, *events: str) -> Said:
    return Said(wall, {"paging": paging, "phase": "decode", "memory": "ok"}, events)


def test_the_judge_finds_faults() -> None:
    told = [one(0, "steady"), one(1, "thrashing", "thrash_begin"), one(2, "thrashing")]
    assert faults({"expect": [{"event": "thrash_begin", "after": 0.5, "before": 1.5}]}, told) == []
    assert faults({"expect": [{"event": "thrash_begin", "after": 1.5, "before": 3}]}, told)
    assert faults({"never": ["thrash_begin"]}, told)
    assert faults({"only_in": [{"event": "thrash_begin", "from": 2, "to": 3}]}, told)
    assert faults({"paging": [{"from": 0, "to": 2, "in": ["thrashing"]}]}, told)
    assert faults({"paging": [{"from": 1, "to": 2, "in": ["thrashing"]}]}, told) == []
    assert faults({"paging": [{"from": 5, "to": 6, "in": ["thrashing"]}]}, told), "no verdict in that time is a fault"
