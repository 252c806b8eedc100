"""The catalogue's values of one Snapshot in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from moetuned.api.metric_catalogue import catalogue
from moetuned.schema.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class SnapshotCollector(Collector):
    """Gives prometheus_client the values of one Snapshot; metrics without a value are left out."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """All families that have a sample."""
        for metric in catalogue():
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(metric.name, metric.help, labels=metric.labels)
            for labels, value in metric.samples(self._snapshot):
                family.add_metric(labels, value)
            if family.samples:
                yield family


def render(snapshot: Snapshot) -> bytes:
    """The body of /metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot))
    return generate_latest(registry)
