"""Sizes, durations and rates as people write them, to and from numbers."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([kmgtp]?)(i?)(b?)\s*", re.IGNORECASE)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_BYTES = 1 << 60


def parse_bytes(text: str | int) -> int:
    """Bytes of "16GiB", "16G", "16g", "512 MiB" or a plain number; K, M, G, T are powers of 1024.

    Raises ValueError with what is allowed, also for sizes beyond 2**60.
    """
    value: float
    if isinstance(text, int):
        value = text  # not through float, which is exact to 2^53 only
    else:
        match = _SIZE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no size; write a number of bytes or e.g. 512MiB, 16GiB")
        number = float(match[1]) if "." in match[1] else int(match[1])
        value = number * 1024 ** _POWERS[match[2].lower()]
    if not 0 <= value <= _MAX_BYTES:
        raise ValueError(f"{text!r} is out of range; a size is between 0 and 2^60 bytes")
    return int(value)


def parse_duration(text: str | float) -> float:
    """Seconds of "500ms", "1s", "5m", "2h", "1d" or a plain number of seconds. Raises ValueError."""
    value: float
    if isinstance(text, int | float):
        value = text
    else:
        match = _DURATION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no duration; write e.g. 500ms, 1s, 5m, 2h")
        value = float(match[1]) * _SECONDS[(match[2] or "s").lower()]
    if not 0 <= value <= 10 * 365 * 86400.0:
        raise ValueError(f"{text!r} is out of range; a duration is between 0 and ten years")
    return float(value)


def format_bytes(count: float | None) -> str:
    """Size for people, e.g. "1.7 GiB"; "unknown" for None; negative sizes keep their sign."""
    if count is None:
        return "unknown"
    sign, value = ("-" if count < 0 else ""), abs(float(count))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1023.5:
            return f"{sign}{value:.0f} {unit}" if unit in ("B", "KiB") or value >= 100 else f"{sign}{value:.1f} {unit}"
        value /= 1024
    return f"{sign}{value:.1f} TiB"


def format_rate(bytes_per_second: float | None) -> str:
    """Rate for people, e.g. "455 MB/s" (decimal, as disks are sold); "unknown" for None."""
    if bytes_per_second is None:
        return "unknown"
    value = float(bytes_per_second)
    for unit in ("B/s", "kB/s", "MB/s"):
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if abs(value) >= 10 or unit == "B/s" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB/s"


def format_duration(seconds: float | None) -> str:
    """Duration for people: "45 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"; "unknown" for None."""
    if seconds is None:
        return "unknown"
    if 0 < seconds < 10:
        return f"{seconds:.1f} s"
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s" if total % 60 else f"{total // 60} min"
    if total < 86400:
        return f"{total // 3600} h {total % 3600 // 60} min" if total % 3600 // 60 else f"{total // 3600} h"
    return f"{total // 86400} d {total % 86400 // 3600} h"


def format_ratio(ratio: float | None) -> str:
    """Ratio for people, e.g. "38 %"; "unknown" for None."""
    return "unknown" if ratio is None else f"{ratio * 100:.0f} %"
