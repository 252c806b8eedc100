"""The catalogue's values of one Snapshot as text: in the format of Prometheus (0.0.4), and in OpenMetrics (1.0.0).

Written here and not by prometheus_client: that brings an HTTP server and TLS into a daemon that has no memory to spare. It reads
what is written here in the tests. Sources: exposition_formats.md of Prometheus, the OpenMetrics specification 1.0.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from moetuned.api.metric_catalogue import Metric, catalogue
from moetuned.schema.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LABEL_CHARACTERS = 1024
"""A label value is cut behind these: a path of a model may be as long as a process likes, the answer may not."""

_IN_LABELS = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


def render(snapshot: Snapshot, *, openmetrics: bool = False) -> bytes:
    """The body of /metrics. A metric without a value is left out, and no text can break out of its label."""
    lines: list[str] = []
    for metric in catalogue():
        samples = [
            f"{metric.name}{_labels(metric.labels, labels)} {_number(value)}\n"
            for labels, value in metric.samples(snapshot)
        ]
        if samples:
            lines += _head(metric, openmetrics=openmetrics)
            lines += samples
    if openmetrics:
        lines.append("# EOF\n")
    # A path may hold bytes that are no text.
    return "".join(lines).encode("utf-8", "replace")


def _head(metric: Metric, *, openmetrics: bool) -> Iterator[str]:
    """What stands above the samples. OpenMetrics names a family without the suffix of its samples, and says the unit."""
    if not openmetrics:
        kind = "gauge" if metric.kind == "info" else metric.kind
        yield f"# HELP {metric.name} {metric.help.translate(_IN_HELP)}\n"
        yield f"# TYPE {metric.name} {kind}\n"
        return
    family = metric.family
    yield f"# HELP {family} {metric.help.translate(_IN_LABELS)}\n"
    yield f"# TYPE {family} {metric.kind}\n"
    unit = metric.unit.replace("/s", "_per_second")
    if unit and family.endswith(f"_{unit}"):  # others, such as bytes_per_token, have it in the middle
        yield f"# UNIT {family} {unit}\n"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = (
        f'{name}="{value[:LABEL_CHARACTERS].translate(_IN_LABELS)}"' for name, value in zip(names, values, strict=True)
    )
    return f"{{{','.join(pairs)}}}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
