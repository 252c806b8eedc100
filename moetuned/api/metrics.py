"""The catalogue's values of one Snapshot as text: in the format of Prometheus (0.0.4), and in OpenMetrics (1.0.0).

prometheus_client writes both. It brings an HTTP server and TLS along, so it is imported when somebody asks for metrics.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from moetuned.api.metric_catalogue import Metric, catalogue
from moetuned.schema.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LABEL_CHARACTERS = 1024
"""A label value is cut behind these: a path of a model may be as long as a process likes, the answer may not."""


class SnapshotCollector(Collector):
    """Gives prometheus_client the values of one Snapshot; metrics without a value are left out."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        """All families that have a sample."""
        for metric in catalogue():
            family = Family(metric.family, metric.help, metric.kind, _unit(metric))
            for labels, value in metric.samples(self._snapshot):
                family.add_sample(metric.name, dict(zip(metric.labels, map(_label, labels), strict=True)), value)
            if family.samples:
                yield family


def render(snapshot: Snapshot, *, openmetrics: bool = False) -> bytes:
    """The body of /metrics. A metric without a value is left out, and no text can break out of its label."""
    collector = SnapshotCollector(snapshot)
    if not openmetrics:
        return generate_latest(collector)
    from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

    text: bytes = generate_openmetrics(collector)  # type: ignore[no-untyped-call]
    return text


def _unit(metric: Metric) -> str:
    """The unit where the name ends in it, as OpenMetrics wants it; others, such as bytes_per_token, have it in the middle."""
    unit = metric.unit.replace("/s", "_per_second")
    return unit if unit and metric.family.endswith(f"_{unit}") else ""


def _label(value: str) -> str:
    """A path may hold bytes that are no text."""
    return value[:LABEL_CHARACTERS].encode("utf-8", "replace").decode()
