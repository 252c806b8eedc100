from __future__ import annotations

import math

import pytest
from api_examples import with_backend
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from moetuned.api.metrics import render
from moetuned.schema.snapshot import MachineView, ResidencyView


def samples(snapshot):
    found = {}
    for family in text_string_to_metric_families(render(snapshot).decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def of(found, name):
    return {labels: value for (key, labels), value in found.items() if key == name}


def test_values_and_labels(snapshot):
    found = samples(snapshot)
    backend = (("backend", "glm"),)
    assert found["moetuned_backend_tokens_per_second", backend] == 0.9
    by_cause = {dict(labels)["cause"]: count for labels, count in of(found, "moetuned_backend_restarts_total").items()}
    assert by_cause == {"relief": 1, "by_hand": 0, "return": 0, "exit": 0}
    assert found["moetuned_ticks_total", ()] == 1000
    assert found["moetuned_backend_resident_part_bytes", (("backend", "glm"), ("part", "other"))] == 3 << 30
    assert found["moetuned_tunables", (("state", "drifted"),)] == 1


def test_state_sets_have_one_sample_a_state_and_one_that_is_1(snapshot):
    paging = of(samples(snapshot), "moetuned_backend_paging")
    assert len(paging) == 6
    assert sum(paging.values()) == 1
    assert paging[("backend", "glm"), ("state", "thrashing")] == 1


def test_unknown_and_nan_are_left_out_and_never_0(snapshot):
    unknown = with_backend(snapshot, residency=ResidencyView(unknown="no cachestat"), layout=None)
    text = render(unknown).decode()
    assert "NaN" not in text
    for name in ("read_amplification_ratio", "refault_ratio", "resident_bytes", "resident_part_bytes"):
        assert f"moetuned_backend_{name}" not in text


def test_infinity_is_a_value(snapshot):
    found = samples(with_backend(snapshot, signals={"seconds_to_limit": math.inf}))
    assert found["moetuned_backend_seconds_to_limit", (("backend", "glm"),)] == math.inf


@pytest.mark.parametrize("hostile", ['a"} 1\nmoetuned_evil{x="', "back\\slash", "line\nbreak", "\x00\x1b[31m", "日本"])
def test_hostile_label_values_stay_values(snapshot, hostile):
    found = samples(with_backend(snapshot, model_path=hostile))
    ((labels, value),) = of(found, "moetuned_backend_info").items()
    assert dict(labels)["model"] == hostile
    assert value == 1
    assert not of(found, "moetuned_evil")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_is_one_label_value(name):
    from moetuned.schema.snapshot import BackendView, SelfView, Snapshot
    from moetuned.schema.verdict import Verdict

    view = BackendView(name=name, kind="x", verdict=Verdict(name, 0.0), sentence="", model_bytes=3)
    snapshot = Snapshot(1, 0.0, 0.0, "observe", "observe", None, SelfView(1, "0", 0.0), MachineView(), (view,))
    line = [line for line in render(snapshot).decode().split("\n") if line.startswith("moetuned_backend_model_bytes{")]
    assert len(line) == 1
    assert line[0].endswith("} 3.0")
