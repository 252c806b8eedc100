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
    whole = len(fields) > 11 or text.endswith("\n")  # kernels before 4.18 write eleven; the last number may be cut
    return DiskCounters(
        read_ios=whole_number(fields[0]),
        read_bytes=_sector_bytes(fields[2]),
        busy_ms=whole_number(fields[9]),
        read_ms=whole_number(fields[3]),
        write_bytes=_sector_bytes(fields[6]),
        in_flight=whole_number(fields[8]),
        queue_ms=whole_number(fields[10]) if whole else None,
    )


def _sector_bytes(field: str) -> int | None:
    sectors = whole_number(field)
    return None if sectors is None else sectors * SECTOR_BYTES
