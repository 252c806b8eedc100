"""The same traces with parts of what is known taken away: nothing may begin that did not happen."""

from __future__ import annotations

import json
import pathlib

import msgspec
import pytest
from trace_truth import FAILS_TODAY

from moetuned.decide.detector import DetectorSettings, initial, step
from moetuned.decide.signals import derive
from moetuned.parse.assemble import assemble
from moetuned.schema.sample import RawBackend, Sample
from moetuned.state.trace import read_trace

TRACES = pathlib.Path(__file__).parent / "data" / "traces"
LOST = [
    {"cgroup"},
    {"http"},
    {"metrics"},
    {"slots"},
    {"layout"},
    {"model"},
    {"residency"},
    {"cgroup", "residency"},
    {"cgroup", "http", "layout", "residency"},
]


def begun(path: pathlib.Path, lost: set[str]) -> list[str]:
    trace = read_trace(str(path))
    identity, facts = trace.identity, trace.facts
    if "cgroup" in lost:
        identity = msgspec.structs.replace(identity, cgroup_directory=None, cgroup_version=None)
    if lost & {"layout", "model"}:
        facts = msgspec.structs.replace(facts, layout=None)
    if "model" in lost:
        facts = msgspec.structs.replace(facts, model_bytes=None)
    state, window, names = initial("lab"), list[Sample](), list[str]()
    for raw in trace.samples:
        given = raw.backends["lab"]
        http = {
            path: "!501 Not Implemented" if path.removeprefix("/") in lost else body
            for path, body in given.http.items()
        }
        kept = RawBackend({} if "http" in lost else http, None if "residency" in lost else given.residency)
        window = [*window[-59:], assemble(msgspec.structs.replace(raw, backends={"lab": kept}), [identity])]
        stepped = step(state, derive(window, "lab", facts), window[-1].backends[0], facts, DetectorSettings())
        state = stepped.state
        names += [one.name.value for one in stepped.begun]
    return names


@pytest.mark.parametrize("lost", LOST, ids=lambda lost: " and ".join(sorted(lost)))
@pytest.mark.parametrize("trace", sorted(TRACES.glob("*.jsonl.gz")), ids=lambda path: path.name.split(".")[0])
def test_nothing_begins_that_did_not_happen(trace: pathlib.Path, lost: set[str]) -> None:
    truth = json.loads((TRACES / trace.name.replace(".jsonl.gz", ".truth.json")).read_text())
    assert not set(begun(trace, lost)) & set(truth.get("never", []))


ONLY_SLOTS_TELL = {"thrash_dense_shortage", "thrash_slow_tokens"}
"""What a token costs is too much, while no fault reads more than it may and it never was fast."""


@pytest.mark.parametrize("lost", [{"metrics"}, {"slots"}, {"residency"}], ids=str)
@pytest.mark.parametrize(
    "trace",
    [path for path in sorted(TRACES.glob("*.jsonl.gz")) if path.name.split(".")[0] not in FAILS_TODAY],
    ids=lambda path: path.name.split(".")[0],
)
def test_what_happened_is_seen_without_one_of_several_sources(trace: pathlib.Path, lost: set[str]) -> None:
    if "slots" in lost and trace.name.split(".")[0] in ONLY_SLOTS_TELL:
        assert "thrash_begin" not in begun(trace, lost)
        return
    truth = json.loads((TRACES / trace.name.replace(".jsonl.gz", ".truth.json")).read_text())
    assert {wanted["event"] for wanted in truth.get("expect", [])} <= set(begun(trace, lost))
