from __future__ import annotations

import re

from moetuned.api.metric_catalogue import catalogue
from moetuned.decide.signals import signal_units
from moetuned.schema.event import EventName

UNITS = ("seconds", "bytes", "ratio", "tokens")
LABELS = {"backend", "cause", "device", "event", "kind", "model", "part", "source", "state", "version"}


def test_names_are_unique_prefixed_and_well_formed():
    names = [metric.name for metric in catalogue()]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"moetuned_[a-z][a-z0-9_]*[a-z0-9]", name)


def test_counters_and_only_counters_end_in_total():
    for metric in catalogue():
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name


def test_infos_and_only_infos_end_in_info():
    for metric in catalogue():
        assert metric.name.endswith("_info") == (metric.kind == "info"), metric.name


def test_no_family_has_the_name_of_a_sample_of_another():
    """OpenMetrics: the names of families and of all their samples must not meet."""
    families = [metric.family for metric in catalogue()]
    assert len(set(families)) == len(families)
    assert not {metric.name for metric in catalogue() if metric.name != metric.family} & set(families)


def test_every_event_is_counted_from_the_start(snapshot):
    (events,) = [metric for metric in catalogue() if metric.name == "moetuned_events_total"]
    assert dict(events.samples(snapshot)) == {(name.value,): 0.0 for name in EventName}


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
