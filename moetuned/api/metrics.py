"""The catalogue's values of one Snapshot in the Prometheus text format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/. Written here because the client library brings an HTTP server, TLS and
mail along: 3.5 to 9 MiB in a daemon that lives where memory is short. The tests hold its output against that library's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from moetuned.api.metric_catalogue import Metric, catalogue
from moetuned.schema.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABEL_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def render(snapshot: Snapshot) -> bytes:
    """The body of /metrics; metrics without a value are left out."""
    lines: list[str] = []
    for metric in catalogue():
        lines += _family(metric, metric.samples(snapshot))
    return "".join(lines).encode("utf-8", "replace")


def _family(metric: Metric, samples: Iterable[tuple[tuple[str, ...], float]]) -> Iterator[str]:
    begun = False
    for values, value in samples:
        if not begun:
            begun = True
            yield f"# HELP {metric.name} {metric.help.translate(_HELP_ESCAPES)}\n# TYPE {metric.name} {metric.kind}\n"
        pairs = zip(metric.labels, values, strict=True)
        labels = ",".join(f'{name}="{text.translate(_LABEL_ESCAPES)}"' for name, text in pairs)
        yield f"{metric.name}{{{labels}}} {_number(value)}\n" if labels else f"{metric.name} {_number(value)}\n"


def _number(value: float) -> str:
    """As the format writes it: what Go's ParseFloat takes, infinities as +Inf and -Inf."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
