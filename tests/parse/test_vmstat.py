from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.vmstat import parse_vmstat
from moetuned.schema.sample import VmStat

TEXT = "workingset_refault_anon 3\nworkingset_refault_file 20\npswpin 5\npswpout 6\npgmajfault 7\npgscan_direct 8\n"


def test_counters_by_name() -> None:
    assert parse_vmstat(TEXT) == VmStat(20, 3, 5, 6, 8, 7)


def test_kernels_before_5_9_count_files_only() -> None:
    stat = parse_vmstat("workingset_refault 20\npswpin 0\n")
    assert stat is not None
    assert (stat.refault_file_pages, stat.refault_anon_pages) == (20, None)


def test_missing_is_unknown() -> None:
    assert parse_vmstat(None) is None
    assert parse_vmstat("") == VmStat()


@given(st.integers(0, len(TEXT)))
def test_cut_text_gives_right_numbers_or_none(length: int) -> None:
    whole, cut = parse_vmstat(TEXT), parse_vmstat(TEXT[:length])
    assert cut is not None
    for field in VmStat.__struct_fields__:
        assert getattr(cut, field) in (None, getattr(whole, field))


@given(st.text())
def test_hostile_text_is_no_exception(text: str) -> None:
    assert isinstance(parse_vmstat(text), VmStat)
