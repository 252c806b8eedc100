from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.boot_commands import Command, parse_boot_commands, read_ahead_by_command

THP = "/sys/kernel/mm/transparent_hugepage"
READ_AHEAD = "/sys/block/{}/queue/read_ahead_kb"


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        (f"ExecStart=/bin/sh -c 'echo never | tee {THP}/enabled > /dev/null'", f"{THP}/enabled", "never"),
        (f"echo never > {THP}/enabled", f"{THP}/enabled", "never"),
        (f'  echo "madvise" >{THP}/defrag', f"{THP}/defrag", "madvise"),
        (f"echo 0 | sudo tee -a {THP}/khugepaged/defrag", f"{THP}/khugepaged/defrag", "0"),
        ("for d in sda sdb; do echo -n 16 > /sys/block/$d/queue/read_ahead_kb; done", READ_AHEAD.format("*"), "16"),
        ("echo 16 > /sys/block/${disk}/queue/read_ahead_kb", READ_AHEAD.format("*"), "16"),
        ("ExecStart=/usr/sbin/sysctl -q -w vm.swappiness=1", "/proc/sys/vm/swappiness", "1"),
        ("sysctl vm/dirty_ratio=5", "/proc/sys/vm/dirty_ratio", "5"),
        ("/sbin/blockdev --setra 256 /dev/sda", READ_AHEAD.format("sda"), "128"),
        ("blockdev --setfra 8192 /dev/nvme0n1p2", READ_AHEAD.format("nvme0n1"), "4096"),
        ("blockdev --setra 8192 /dev/mapper/vg-lv", READ_AHEAD.format("*"), "4096"),
        ("blockdev --setra 8192 $d", READ_AHEAD.format("*"), "4096"),
    ],
)
def test_a_line_that_sets_something(line: str, path: str, value: str) -> None:
    assert parse_boot_commands(f"#!/bin/sh\n{line}\n") == (Command(path, value, 2),)


def test_one_value_for_several_files() -> None:
    found = parse_boot_commands(f"echo never | tee {THP}/enabled {THP}/defrag >/dev/null; echo 1 > /proc/sys/vm/a")
    assert [(command.path, command.value) for command in found] == [
        (f"{THP}/enabled", "never"),
        (f"{THP}/defrag", "never"),
        ("/proc/sys/vm/a", "1"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        f"# echo never > {THP}/enabled",
        f"ExecStop=/bin/sh -c 'echo always > {THP}/enabled'",
        f"Description=echo never > {THP}/enabled",
        f"cat {THP}/enabled",
        f"echo $(date) > {THP}/enabled",
        "echo 1 > /tmp/x",
        "sysctl -a",
        "sysctl vm.swappiness",
        "sysctl --system",
        "blockdev --getra /dev/sda",
        "",
    ],
)
def test_a_line_that_sets_nothing_we_can_read(line: str) -> None:
    assert parse_boot_commands(line) == ()


def test_the_read_ahead_of_a_command() -> None:
    assert read_ahead_by_command("/sbin/blockdev --setra 2048 /dev/%k") == Command(READ_AHEAD.format("*"), "1024", 0)
    assert read_ahead_by_command("true") is None


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    parse_boot_commands(text)


@given(
    st.lists(
        st.sampled_from(["echo ", "never", " > ", "/sys/a", " | ", "tee ", "sysctl ", "-w ", "a=1", "\n", "'", " "])
    )
)
def test_text_that_looks_like_commands_is_answered(words: list[str]) -> None:
    for command in parse_boot_commands("".join(words)):
        assert command.path.startswith(("/sys/", "/proc/sys/"))
