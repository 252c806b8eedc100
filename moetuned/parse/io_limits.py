"""Limits of a cgroup on what it may read: io.max (v2) and blkio.throttle.read_* (v1), by device number.

Formats: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/blkio-controller.rst.
"""

from __future__ import annotations

import msgspec

from moetuned.parse.kernel_numbers import whole_number


class ReadLimit(msgspec.Struct, frozen=True):
    """What may be read of one device a second; None: no limit."""

    bytes_per_second: int | None = None
    ios_per_second: int | None = None

    def __bool__(self) -> bool:
        return self.bytes_per_second is not None or self.ios_per_second is not None


def parse_io_max(text: str) -> dict[str, ReadLimit]:
    """Read limits by "major:minor"; devices without one and strange lines are left out."""
    found: dict[str, ReadLimit] = {}
    for line in text.splitlines():
        device, *pairs = line.split() or [""]
        values = dict(pair.partition("=")[::2] for pair in pairs)
        limit = ReadLimit(whole_number(values.get("rbps", "")), whole_number(values.get("riops", "")))
        if limit and ":" in device:
            found[device] = limit
    return found


def parse_throttle(bytes_text: str, ios_text: str) -> dict[str, ReadLimit]:
    """The same of the two files of v1: "8:0 1048576" a line."""
    bytes_limits, ios_limits = _numbers(bytes_text), _numbers(ios_text)
    return {
        device: ReadLimit(bytes_limits.get(device), ios_limits.get(device))
        for device in dict.fromkeys((*bytes_limits, *ios_limits))
    }


def _numbers(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    found = {pair[0]: whole_number(pair[1]) for pair in pairs if len(pair) == 2 and ":" in pair[0]}
    return {device: number for device, number in found.items() if number}
