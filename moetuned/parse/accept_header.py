"""The Accept header of a scrape: whether OpenMetrics is preferred to the older text format of Prometheus.

Source: RFC 9110, 12.5.1; what Prometheus sends is named in its content negotiation document.
"""

from __future__ import annotations

import re

OPENMETRICS = "application/openmetrics-text"
_VERSIONS = frozenset({"0.0.1", "1.0.0"})
"""Versions of OpenMetrics whose readers understand 1.0.0; a range that names none takes any."""
_TEXT = ("text/plain", "text/*", "*/*")
"""Ranges that mean the older format, the most telling first."""
_WEIGHT = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")
_RANGES = 32
"""So many ranges of a header are looked at; what scrapes sends four."""


def prefers_openmetrics(header: str | None) -> bool:
    """Whether who sent this Accept header (None: none) wants OpenMetrics at least as much as the text format.

    A range that cannot be read counts for nothing. Who takes anything (`*/*`, curl) gets the text format, as does who names neither.
    """
    openmetrics, text = 0.0, dict.fromkeys(_TEXT, 0.0)
    for part in (header or "").split(",", _RANGES)[:_RANGES]:
        words = [word.strip() for word in part.lower().split(";")]
        parameters = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        weight = parameters.get("q", "1")
        if _WEIGHT.fullmatch(weight) is None:
            continue
        if words[0] == OPENMETRICS and parameters.get("version", "1.0.0").strip('"') in _VERSIONS:
            openmetrics = max(openmetrics, float(weight))
        elif words[0] in text:
            text[words[0]] = max(text[words[0]], float(weight))
    wanted = next((text[kind] for kind in _TEXT if text[kind] > 0), 0.0)
    return openmetrics > 0 and openmetrics >= wanted
