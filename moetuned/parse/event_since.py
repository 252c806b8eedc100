"""Since when events are wanted: the id of an event, or a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_EVENT_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_SECONDS = re.compile(r"[0-9]{9,12}(\.[0-9]{1,9})?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?")


def event_since(text: str) -> str | float:
    """An event's id as it is, or Unix seconds: of a number of them, or of ISO 8601, which is UTC where it does not say. Raises ValueError."""
    if _SECONDS.fullmatch(text):
        return float(text)
    if looks_like_time(text):
        at = iso_time(text)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    if _EVENT_ID.fullmatch(text):
        return text
    raise ValueError(
        "is no event id and no time; take an id from /v1/events, or write Unix seconds or 2026-11-30T14:00Z"
    )


def looks_like_time(text: str) -> bool:
    """Whether it is written as a date, perhaps with a time of day."""
    return _ISO.fullmatch(text) is not None


def iso_time(text: str) -> datetime:
    """The time that is written so, without a zone where it names none. Raises ValueError."""
    try:
        at = datetime.fromisoformat(text)
        at.timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError("is no time") from None
    return at
