from __future__ import annotations

import math
import subprocess

import pytest
from api_examples import known_snapshot, with_backend
from fakes.debian_programs import program
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from moetuned.api.metric_catalogue import catalogue
from moetuned.api.metrics import LABEL_CHARACTERS, render
from moetuned.schema.snapshot import BackendView, MachineView, ResidencyView, SelfView, Snapshot
from moetuned.schema.verdict import Verdict


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


def one_named(name):
    view = BackendView(name=name, kind="x", verdict=Verdict(name, 0.0), sentence="", model_bytes=3)
    return Snapshot(1, 0.0, 0.0, "observe", "observe", None, SelfView(1, "0", 0.0), MachineView(), (view,))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_is_one_label_value(name):
    line = [
        line
        for line in render(one_named(name)).decode().split("\n")
        if line.startswith("moetuned_backend_model_bytes{")
    ]
    assert len(line) == 1
    assert line[0].endswith("} 3.0")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_a_reader_gets_any_text_back_from_both_formats(name):
    snapshot = one_named(name)
    for families in (
        text_string_to_metric_families(render(snapshot).decode()),
        openmetrics_families(render(snapshot, openmetrics=True).decode()),
    ):
        (found,) = [family for family in families if family.name == "moetuned_backend_model_bytes"]
        assert [(sample.labels, sample.value) for sample in found.samples] == [({"backend": name}, 3.0)]


def test_bytes_that_are_no_text_do_not_end_the_answer():
    assert b'{backend="a?b"} 3.0\n' in render(one_named("a\udcffb"))


def test_a_label_value_is_cut():
    assert f'{{backend="{"x" * LABEL_CHARACTERS}"}} 3.0\n'.encode() in render(one_named("x" * 100_000))


def test_openmetrics_says_the_same_with_types_and_units():
    snapshot = known_snapshot()
    text = render(snapshot, openmetrics=True).decode()
    assert text.endswith("\n# EOF\n")
    assert text.count("# EOF") == 1
    families = {family.name: family for family in openmetrics_families(text)}
    assert families["moetuned_ticks"].type == "counter"
    assert families["moetuned_build"].type == "info"
    assert families["moetuned_cpu_seconds"].unit == "seconds"
    assert families["moetuned_backend_tokens_per_second"].unit == "tokens_per_second"
    assert families["moetuned_backend_model_bytes"].unit == "bytes"
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert found == samples(snapshot)
    assert not [name for name, _ in found if name.endswith("_created")]


def test_when_all_is_known_each_metric_of_the_catalogue_is_there():
    names = {name for name, _ in samples(known_snapshot())}
    assert names == {metric.name for metric in catalogue()}


def test_promtool_has_nothing_to_say():
    promtool = program("promtool")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=render(known_snapshot()), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_promtool_would_say_something():
    broken = render(known_snapshot()).replace(b"moetuned_ticks_total", b"moetuned_ticks")
    done = subprocess.run([program("promtool"), "check", "metrics"], input=broken, capture_output=True, check=False)
    assert b"moetuned_ticks counter metrics should have" in done.stdout + done.stderr
    assert done.returncode != 0
