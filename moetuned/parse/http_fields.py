"""Fields of HTTP answers that nobody vouches for: a body, a count, a metric, and what no answer means.

A path that could not be read holds "!reason" in place of a body. Nothing here raises for what an answer holds.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from moetuned.parse.kernel_numbers import line_value

MAX_BODY_CHARACTERS = 4 << 20
MAX_COUNT = 1 << 53
"""Larger token counts are no counts (and JSON numbers beyond it are not exact)."""


def body_of(text: str | None) -> str | None:
    """The text; None for "!reason", for nothing and for too much."""
    return None if text is None or text.startswith("!") or len(text) > MAX_BODY_CHARACTERS else text


def failure(reason: str) -> str:
    """`health` for a path that gave "!reason" (without the mark): loading, busy, unreachable or error."""
    if "503" in reason or reason == "httperror":
        return "loading"
    if "timeout" in reason or "timed out" in reason:
        return "busy"
    if any(word in reason for word in ("refused", "urlerror", "connect", "unreachable", "remote")):
        return "unreachable"
    return "error"


def decoded_by(decoder: msgspec.json.Decoder[Any], body: str | None) -> object:
    """What a body says; None for one that makes no sense."""
    if body is None:
        return None
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def count_of(value: object) -> int | None:
    """A whole number that may be a count of tokens; None for anything else."""
    if type(value) is int and 0 <= value < MAX_COUNT:  # a bool is none
        return value
    return None


def metric_of(metrics: str, name: str) -> float | None:
    """The value in the line of Prometheus text that begins with `name`; None when there is none."""
    text = line_value(metrics, name, " ")
    if text is None or len(text) > 64:
        return None
    try:
        value = float(text.split()[0])
    except (ValueError, IndexError):
        return None
    return value if math.isfinite(value) and 0 <= value < MAX_COUNT else None
