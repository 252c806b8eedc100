from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import swap_room
from moetuned.host.cgroup import Hierarchy
from moetuned.host.fs import RealFS
from moetuned.host.swap_room import read_room, tight_cgroups, used_bytes, why_tight
from moetuned.schema.sample import CgroupMemory

MIB = 1 << 20
HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
MEMINFO = "MemTotal:  1000000 kB\nMemAvailable:  500000 kB\n"


def machine(root: Path, rows: str, meminfo: str = MEMINFO) -> RealFS:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/swaps").write_text(HEAD + rows)
    (root / "proc/meminfo").write_text(meminfo)
    return RealFS(str(root))


def file_of(tmp_path: Path, name: str, size: int = MIB) -> str:
    path = tmp_path / name
    path.write_bytes(b"")
    os.truncate(path, size)
    return str(path)


def test_the_row_of_the_same_file_counts_under_whatever_name(tmp_path: Path) -> None:
    path = file_of(tmp_path, "swapfile")
    os.link(path, tmp_path / "other")
    fs = machine(tmp_path, f"/elsewhere file 1020 7 1\n{tmp_path}/other file 1020 5 1\n")
    assert used_bytes(path, fs) == 5 * 1024


def test_a_name_that_means_nothing_here_counts_by_its_size(tmp_path: Path) -> None:
    path = file_of(tmp_path, "swapfile")
    fs = machine(tmp_path, "/swapfile file 1020 7 1\n/too-large file 2044 50 1\n/dev/sda2 partition 1020 9 1\n")
    assert used_bytes(path, fs) == 7 * 1024
    assert used_bytes(path, machine(tmp_path, "/a file 1020 7 1\n/b file 1020 2 1\n")) == 9 * 1024
    assert used_bytes(path, machine(tmp_path, "/dev/sda2 partition 1020 9 1\n")) is None


def test_zram_counts_by_its_number(tmp_path: Path) -> None:
    fs = machine(tmp_path, "/dev/zram1 partition 1020 7 1\n/zram11 partition 1020 9 1\n")
    assert used_bytes("/dev/zram1", fs) == 7 * 1024
    assert used_bytes("/dev/zram11", fs) == 9 * 1024
    assert used_bytes("/dev/zram2", fs) == 0


def test_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_room, "tight_cgroups", lambda fs: iter(("a tight one",)))
    room = read_room("/dev/zram1", machine(tmp_path, "/dev/zram1 partition 1020 7 1\n"))
    assert (room.used_bytes, room.available_bytes, room.memory_bytes) == (7 * 1024, 500000 * 1024, 1000000 * 1024)
    assert room.tight == ("a tight one",)
    assert read_room("/dev/zram2", RealFS(str(tmp_path))).tight == ()
    assert read_room("/dev/zram2", RealFS(str(tmp_path / "absent"))).used_bytes is None


def memory(**values: Any) -> CgroupMemory:
    return CgroupMemory(**{"version": 2, **values})


@pytest.mark.parametrize(
    ("values", "tight"),
    [
        ({"swap_bytes": 0, "limit_bytes": MIB, "current_bytes": MIB}, False),
        ({"swap_bytes": None, "limit_bytes": MIB, "current_bytes": MIB}, False),
        ({"swap_bytes": MIB, "limit_bytes": None, "current_bytes": MIB}, False),
        ({"swap_bytes": MIB, "limit_bytes": 64 * MIB, "current_bytes": 62 * MIB}, False),
        ({"swap_bytes": MIB + 1, "limit_bytes": 64 * MIB, "current_bytes": 62 * MIB}, True),
        (
            {
                "swap_bytes": 9 * MIB,
                "limit_bytes": 64 * MIB,
                "current_bytes": 64 * MIB,
                "reclaimable_file_bytes": 20 * MIB,
            },
            False,
        ),
        ({"swap_bytes": 1, "limit_bytes": MIB, "current_bytes": None}, True),
    ],
)
def test_which_cgroups_are_tight(values: dict[str, Any], tight: bool) -> None:
    assert (why_tight(memory(**values)) is not None) is tight


NUMBERS = st.one_of(st.none(), st.integers(0, 1 << 40))


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_what_is_not_tight_has_room(
    swapped: int | None, limit: int | None, current: int | None, dropped: int | None
) -> None:
    held = memory(swap_bytes=swapped, limit_bytes=limit, current_bytes=current, reclaimable_file_bytes=dropped)
    if why_tight(held) is None and swapped and limit is not None:
        assert current is not None
        assert swapped + max(0, current - (dropped or 0)) <= limit


def cgroup(root: Path, name: str, **files: str) -> None:
    directory = root / name
    directory.mkdir(parents=True)
    for file, text in files.items():
        (directory / file.replace("_", ".", 1).replace("swap_", "swap.")).write_text(text)


def test_cgroups_are_walked_down_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_room, "writable_hierarchy", lambda fs: Hierarchy(str(tmp_path), 2))
    full = {"memory_current": "1000000\n", "memory_max": "1048576\n", "memory_swap_current": "900000\n"}
    cgroup(tmp_path, "a/tight", **full)
    cgroup(tmp_path, "b", **{**full, "memory_max": "max\n"})
    (said,) = tight_cgroups()
    assert said.startswith(f"the cgroup {tmp_path}/a/tight has 879 KiB swapped out")
    monkeypatch.setattr(swap_room, "_MOST_CGROUPS", 1)
    assert "too many to look at" in next(iter(tight_cgroups()))
    monkeypatch.setattr(swap_room, "writable_hierarchy", lambda fs: None)
    assert list(tight_cgroups()) == []
