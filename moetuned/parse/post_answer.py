"""What the status of an answer to a POST says about a delivery: done, to be tried again, or refused for good (RFC 9110 15, RFC 6585)."""

from __future__ import annotations

import re

import msgspec

MOST_RETRY_AFTER_SECONDS = 3600.0
_TRY_AGAIN = frozenset({408, 425, 429})
"""Of the 4xx, those that speak of the time and not of the request."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE = re.compile(r"[A-Za-z]{3}, (\d\d) ([A-Za-z]{3}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT")


class PostAnswer(msgspec.Struct, frozen=True):
    """`retry`: the same request may go well later. `detail`: a part of a sentence, as "answered 503 Service Unavailable"."""

    ok: bool
    retry: bool
    detail: str
    retry_after_seconds: float | None = None


def judge_status(status: int, reason: str, retry_after: str | None, now_wall_seconds: float) -> PostAnswer:
    """What the status line and the header Retry-After say."""
    words = "".join(char if char.isascii() and char.isprintable() else "?" for char in reason[:60]).strip()
    detail = f"answered {status}{f' {words}' if words else ''}"
    if 200 <= status < 300:
        return PostAnswer(ok=True, retry=False, detail=detail)
    retry = status in _TRY_AGAIN or status >= 500
    wait = retry_after_seconds(retry_after, now_wall_seconds) if retry else None
    return PostAnswer(ok=False, retry=retry, detail=detail, retry_after_seconds=wait)


def retry_after_seconds(text: str | None, now_wall_seconds: float) -> float | None:
    """Seconds that the other side asks to wait, at most an hour: a number, or a date (RFC 9110 10.2.3). None: it does not say."""
    if text is None:
        return None
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,100}", text):
        return min(float(text), MOST_RETRY_AFTER_SECONDS)
    at = _http_date(text)
    return None if at is None else min(max(0.0, at - now_wall_seconds), MOST_RETRY_AFTER_SECONDS)


def _http_date(text: str) -> float | None:
    """Unix seconds of an IMF-fixdate, e.g. "Sun, 06 Nov 1994 08:49:37 GMT"; None for anything else."""
    from datetime import UTC, datetime

    match = _DATE.fullmatch(text)
    if match is None or match[2].lower() not in _MONTHS:
        return None
    day, month, (year, hour, minute, second) = (
        int(match[1]),
        _MONTHS.index(match[2].lower()) + 1,
        map(int, match.groups()[2:]),
    )
    try:
        return datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:
        return None
