from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.meminfo import parse_meminfo
from moetuned.schema.sample import MemInfo

TEXT = """MemTotal:       24683652 kB
MemFree:        23041616 kB
MemAvailable:   23816640 kB
Buffers:             196 kB
Cached:           991616 kB
SwapCached:            0 kB
Active(file):     493696 kB
Inactive(file):   489060 kB
Unevictable:       11856 kB
Mlocked:           10792 kB
SwapTotal:       2097152 kB
SwapFree:        2097000 kB
AnonPages:        325004 kB
Shmem:              8956 kB
SUnreclaim:        28444 kB
HugePages_Total:       2
Hugepagesize:       2048 kB
"""


def test_bytes_by_name() -> None:
    info = parse_meminfo(TEXT)
    assert info is not None
    assert info.total_bytes == 24683652 * 1024
    assert info.cached_bytes == 991616 * 1024, "not SwapCached"
    assert info.reclaimable_file_bytes == (493696 + 489060) * 1024
    assert info.hugepages_bytes == 2 * 2048 * 1024
    assert info.swap_free_bytes == 2097000 * 1024


def test_huge_pages_of_all_sizes_count() -> None:
    info = parse_meminfo(TEXT + "Hugetlb:         2101248 kB\n")
    assert info is not None
    assert info.hugepages_bytes == 2101248 * 1024


def test_missing_is_unknown() -> None:
    assert parse_meminfo(None) is None
    assert parse_meminfo("") == MemInfo()


@given(st.integers(0, len(TEXT)))
def test_cut_text_gives_right_numbers_or_none(length: int) -> None:
    whole, cut = parse_meminfo(TEXT), parse_meminfo(TEXT[:length])
    assert cut is not None
    for field in MemInfo.__struct_fields__:
        assert getattr(cut, field) in (None, getattr(whole, field))


@given(st.text())
def test_hostile_text_is_no_exception(text: str) -> None:
    assert isinstance(parse_meminfo(text), MemInfo)


def test_more_free_swap_than_swap_is_unknown() -> None:
    info = parse_meminfo(TEXT.replace("2097000", "2097153"))
    assert info is not None
    assert (info.swap_total_bytes, info.swap_free_bytes) == (2097152 * 1024, None)
