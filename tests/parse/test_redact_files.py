"""Kernel texts without people's names; numbers stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.process import parse_process
from moetuned.parse.redact_files import anonymous_cgroup, redact_file

SECRET = "S3cr3tW0rd"
STAT = f"7 ({SECRET}) ) x) S 1 7 7 0 -1 4194304 1 0 9 0 5 5 0 0 20 0 1 0 100 1000 100" + " 0" * 30 + "\n"
STATUS = (
    f"Name:\t{SECRET}\nState:\tS (sleeping)\nUid:\t1001\t1001\t1001\t1001\nGroups:\t27 1001 \nVmSwap:\t 12 kB\nRssAnon:\t 8 kB\n"
    "RssFile:\t 4 kB\nVmLck:\t 0 kB\nThreads:\t9\nSigQ:\t0/1\n"
)


def test_the_parser_reads_the_same_of_a_process() -> None:
    stat, status = redact_file("/proc/7/stat", STAT), redact_file("/proc/7/status", STATUS)
    assert stat is not None
    assert status is not None
    assert SECRET not in stat + status
    assert "1001" not in status
    assert "Threads:\t9" in status
    assert parse_process(7, stat, status, None) == parse_process(7, STAT, STATUS, None)


@given(st.text(max_size=30), st.integers(0, len(STAT)), st.integers(0, len(STATUS)))
def test_cut_and_hostile_texts_parse_as_before(name: str, stat_end: int, status_end: int) -> None:
    stat, status = STAT.replace(SECRET, name)[:stat_end], STATUS[:status_end]
    told = redact_file("/proc/7/stat", stat), redact_file("/proc/7/status", status)
    assert parse_process(7, *told, None) == parse_process(7, stat, status, None)


def test_what_cannot_be_read_stays_unknown() -> None:
    assert redact_file("/proc/7/stat", None) is None


def test_tables_of_numbers_are_left_alone() -> None:
    assert redact_file("/sys/block/vda/stat", "1 2 (3) 4\n") == "1 2 (3) 4\n"
    assert redact_file("/proc/stat", "cpu  1 2\n") == "cpu  1 2\n"
    assert redact_file("/sys/fs/cgroup/memory.stat", "anon 1\n") == "anon 1\n"


def test_who_built_the_kernel_is_nobodys_business() -> None:
    assert (
        redact_file("/proc/version", f"Linux version 6.8.0 (joe@{SECRET}) (gcc 13) #1 SMP\n") == "Linux version 6.8.0\n"
    )


def test_one_processor_without_its_serial_number() -> None:
    text = f"processor\t: 0\nmodel name\t: A\nSerial\t\t: {SECRET}\n\nprocessor\t: 1\nmodel name\t: A\n"
    assert redact_file("/proc/cpuinfo", text) == "model name\t: A\n"
    assert redact_file("/proc/cpuinfo", "") == ""


def test_where_a_swap_file_lies_is_not_told() -> None:
    text = f"Filename\tType\tSize\tUsed\tPriority\n/home/{SECRET}/swap file\\040x\tfile\t100\t7\t-2\n"
    assert redact_file("/proc/swaps", text) == "Filename\tType\tSize\tUsed\tPriority\nswap1 file 100 7 -2\n"


@pytest.mark.parametrize(
    ("directory", "told"),
    [
        ("/sys/fs/cgroup/user.slice/user-1000.slice/joe.scope", "/sys/fs/cgroup/level1/level2/level3"),
        ("/sys/fs/cgroup/memory/lxc/joe", "/sys/fs/cgroup/memory/level1/level2"),
        ("/sys/fs/cgroup", "/sys/fs/cgroup"),
        ("/elsewhere/joe", "/sys/fs/cgroup"),
    ],
)
def test_a_cgroup_without_names(directory: str, told: str) -> None:
    assert anonymous_cgroup(directory) == told
