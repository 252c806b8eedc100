from __future__ import annotations

import re

from moetuned.api.metric_catalogue import catalogue
from moetuned.decide.signals import signal_units

UNITS = ("seconds", "bytes", "ratio", "tokens")
LABELS = {"backend", "cause", "device", "kind", "model", "part", "source", "state", "version"}


def test_names_are_unique_prefixed_and_well_formed():
    names = [metric.name for metric in catalogue()]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"moetuned_[a-z][a-z0-9_]*[a-z0-9]", name)


def test_counters_and_only_counters_end_in_total():
    for metric in catalogue():
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name


def test_names_carry_their_base_unit():
    for metric in catalogue():
        if metric.unit in UNITS:
            assert re.search(rf"_{metric.unit}(_|$)", metric.name), metric.name


def test_help_and_labels():
    for metric in catalogue():
        assert metric.help.strip() == metric.help != ""
        assert "\n" not in metric.help
        assert set(metric.labels) <= LABELS


def test_every_signal_of_a_backend_is_a_metric():
    names = {metric.name for metric in catalogue()}
    for signal in signal_units():
        if not signal.startswith("machine_"):
            assert any(name in names for name in (f"moetuned_backend_{signal}", f"moetuned_backend_{signal}_ratio"))


def test_samples_have_as_many_label_values_as_labels(snapshot):
    for metric in catalogue():
        for labels, value in metric.samples(snapshot):
            assert len(labels) == len(metric.labels)
            assert isinstance(value, float)
