"""/sys/block/<dev>/stat (Documentation/block/stat.rst)."""

from __future__ import annotations

from moetuned.parse.kernel_numbers import whole_number
from moetuned.schema.sample import DiskCounters

SECTOR_BYTES = 512
"""The file counts in 512-byte sectors whatever the device's own size is."""


def parse_disk_stat(text: str | None) -> DiskCounters | None:
    """Counters of one block device; None for no text or a line with too few fields."""
    if text is None:
        return None
    fields = text[:1024].split()
    if len(fields) < 11:
        return None
    sectors = whole_number(fields[2])
    return DiskCounters(
        read_ios=whole_number(fields[0]),
        read_bytes=None if sectors is None else sectors * SECTOR_BYTES,
        busy_ms=whole_number(fields[9]),
    )
