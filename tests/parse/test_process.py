from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.process import parse_process
from moetuned.schema.sample import ProcessCounters

AFTER_NAME = " R 19002 18939 1463 0 -1 4458496 68802 0 2920 0 890 1100 0 0 20 0 11 0 255092 2571083776 65536 18446744073709551615 1\n"
STAT = "19660 (llama-server)" + AFTER_NAME
STATUS = "Name:\tllama-server\nState:\tR (running)\nVmLck:\t       4 kB\nRssAnon:\t   78000 kB\nRssFile:\t  300000 kB\nRssShmem:\t       0 kB\nVmSwap:\t      12 kB\n"
IO = "rchar: 69318\nwchar: 1032\nsyscr: 54\nsyscw: 38\nread_bytes: 22986887168\nwrite_bytes: 24576\ncancelled_write_bytes: 0\n"


def test_counters_of_all_threads() -> None:
    assert parse_process(19660, STAT, STATUS, IO) == ProcessCounters(
        pid=19660,
        start_ticks=255092,
        state="R",
        major_faults=2920,
        cpu_ticks=1990,
        rss_anon_bytes=78000 * 1024,
        rss_file_bytes=300000 * 1024,
        rss_shmem_bytes=0,
        swap_bytes=12 * 1024,
        locked_bytes=4096,
        read_bytes=22986887168,
    )


@pytest.mark.parametrize(
    "name", [")", "a) R 1 2 3", "two\nlines", ") S 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 (x", "", "()" * 7]
)
def test_a_command_name_may_hold_anything(name: str) -> None:
    process = parse_process(1, f"1 ({name}){AFTER_NAME}", None, None)
    assert process is not None
    assert (process.state, process.major_faults, process.start_ticks) == ("R", 2920, 255092)


def test_a_zombie_has_no_memory_lines() -> None:
    process = parse_process(1, "1 (x)" + AFTER_NAME.replace(" R", " Z", 1), "Name:\tx\nState:\tZ (zombie)\n", "")
    assert process is not None
    assert (process.state, process.rss_anon_bytes, process.read_bytes) == ("Z", None, None)


def test_no_stat_is_no_process() -> None:
    assert parse_process(1, None, STATUS, IO) is None
    assert parse_process(1, "nothing here\n", STATUS, IO) is None


@given(st.integers(0, len(STAT)), st.integers(0, len(STATUS)), st.integers(0, len(IO)))
def test_cut_text_gives_right_numbers_or_none(stat: int, status: int, io: int) -> None:
    whole, cut = parse_process(1, STAT, STATUS, IO), parse_process(1, STAT[:stat], STATUS[:status], IO[:io])
    assert whole is not None
    if cut is not None:
        for field in ProcessCounters.__struct_fields__:
            assert getattr(cut, field) in (None, getattr(whole, field))


@given(st.text(), st.text(), st.text())
def test_hostile_text_is_no_exception(stat: str, status: str, io: str) -> None:
    process = parse_process(1, stat, status, io)
    assert process is None or process.pid == 1
