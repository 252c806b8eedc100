"""What a backend of no known kind answers over HTTP: whether it is healthy, and the numbers that the config's expressions find.

The health path says it with its status alone: 200 is ok, 503 is loading. Numbers are looked for line by line in the answer of
the metrics path, as Prometheus text has them; each expression's first group is the number. A line counts only when the expression
fits from its beginning, and no more than `_MOST_LINES` of those that begin alike are tried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache

from moetuned.parse.bounded_pattern import MOST_TEXT, bounded_pattern
from moetuned.parse.http_fields import MAX_COUNT, body_of, failure
from moetuned.schema.backend_abilities import HttpPaths
from moetuned.schema.config import Generic
from moetuned.schema.sample import BackendHttp, HttpNumbers

_MOST_LINES = 16
_LEAST_PREFIX = 3
_PREFIX = re.compile(r"[A-Za-z0-9_:\- \"]*")


def numbers_of(generic: Generic | None) -> HttpNumbers | None:
    """What an entry of the config says of its HTTP."""
    if generic is None:
        return None
    return HttpNumbers(generic.health, generic.metrics, generic.tokens, generic.prompt_tokens, generic.requests)


def numbers_paths(numbers: HttpNumbers | None) -> HttpPaths | None:
    """What is asked; None where nothing is said of it."""
    return None if numbers is None else HttpPaths(numbers.health, metrics=numbers.metrics)


def number_pattern(text: str) -> re.Pattern[str]:
    """The expression of a number, compiled. Raises ValueError with one phrase that says what is wrong."""
    pattern = bounded_pattern(text)
    if pattern.groups < 1:
        raise ValueError("must have one group, the number: e.g. tokens_total (\\S+)")
    if len(_literal_prefix(text)) < _LEAST_PREFIX:
        raise ValueError(
            f"must begin with at least {_LEAST_PREFIX} plain characters of the line, e.g. tokens_total (\\S+)"
        )
    return pattern


def parse_numbers_http(bodies: Mapping[str, str], numbers: HttpNumbers) -> BackendHttp:
    """What the bodies by path say."""
    metrics = body_of(bodies.get(numbers.metrics)) if numbers.metrics is not None else None
    return BackendHttp(
        health=_health(bodies.get(numbers.health)),
        tokens_predicted_total=_number(metrics, numbers.tokens),
        prompt_tokens_total=_number(metrics, numbers.prompt_tokens),
        requests_processing=_number(metrics, numbers.requests),
        tells_slots=False,
        counts_live=numbers.tokens is not None,
    )


def _health(text: str | None) -> str | None:
    if text is None:
        return None
    return failure(text[1:256].lower()) if text.startswith("!") else "ok"


def _number(metrics: str | None, text: str | None) -> float | None:
    pattern = None if text is None else _compiled(text)
    if metrics is None or text is None or pattern is None:
        return None
    metrics, beginning = "\n" + metrics, "\n" + _literal_prefix(text)
    start = metrics.find(beginning)
    for _ in range(_MOST_LINES):
        if start < 0:
            break
        end = metrics.find("\n", start + 1)
        found = pattern.match(metrics[start + 1 : end if end >= 0 else None][:MOST_TEXT])
        if found is not None:
            return _value(found[1])
        start = metrics.find(beginning, start + 1)
    return None


def _value(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None and len(text) <= 64 else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < MAX_COUNT else None


@lru_cache(maxsize=64)
def _compiled(text: str) -> re.Pattern[str] | None:
    try:
        return number_pattern(text)
    except ValueError:
        return None


def _literal_prefix(text: str) -> str:
    """Plain characters with which every match begins: what stands before the first special one, without one that is repeated."""
    if "|" in text:
        return ""
    prefix = _PREFIX.match(text)
    plain = "" if prefix is None else prefix[0]
    return plain[:-1] if text[len(plain) : len(plain) + 1] in ("*", "+", "?", "{") and plain else plain
