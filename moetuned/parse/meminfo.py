"""/proc/meminfo (Documentation/filesystems/proc.rst)."""

from __future__ import annotations

from moetuned.parse.kernel_numbers import line_kilobytes, line_number
from moetuned.schema.sample import MemInfo


def parse_meminfo(text: str | None) -> MemInfo | None:
    """Bytes by name; None for no text. Lines that are missing, cut or strange are None.

    Huge pages are those of all sizes (Hugetlb, since Linux 4.16).
    More free swap than swap is strange, too: lxcfs subtracts the wrong use on cgroup v2 (proc_meminfo_read of its proc_fuse.c).
    """
    if text is None:
        return None
    pages, page_bytes = line_number(text, "HugePages_Total", ":"), line_kilobytes(text, "Hugepagesize")
    huge = None if pages is None or page_bytes is None else pages * page_bytes  # of the default size alone
    swap, swap_free = line_kilobytes(text, "SwapTotal"), line_kilobytes(text, "SwapFree")
    active, inactive = line_kilobytes(text, "Active(file)"), line_kilobytes(text, "Inactive(file)")
    return MemInfo(
        total_bytes=line_kilobytes(text, "MemTotal"),
        free_bytes=line_kilobytes(text, "MemFree"),
        available_bytes=line_kilobytes(text, "MemAvailable"),
        cached_bytes=line_kilobytes(text, "Cached"),
        anonymous_bytes=line_kilobytes(text, "AnonPages"),
        shared_bytes=line_kilobytes(text, "Shmem"),
        mlocked_bytes=line_kilobytes(text, "Mlocked"),
        unevictable_bytes=line_kilobytes(text, "Unevictable"),
        slab_unreclaimable_bytes=line_kilobytes(text, "SUnreclaim"),
        swap_total_bytes=swap,
        swap_free_bytes=None if swap is None or swap_free is None or swap_free > swap else swap_free,
        hugepages_bytes=huge if (all_sizes := line_kilobytes(text, "Hugetlb")) is None else all_sizes,
        buffers_bytes=line_kilobytes(text, "Buffers"),
        reclaimable_file_bytes=None if active is None or inactive is None else active + inactive,
    )
