"""Headroom as the locking process reads it: the same as the daemon's, v1 and v2, with the limits of cgroups above."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.decide.memory_headroom import tightest_room
from moetuned.host.room_left import dies_together, rooms
from moetuned.parse.cgroup_memory import cgroup_file_names, parse_cgroup_memory
from moetuned.parse.meminfo import parse_meminfo
from moetuned.schema.sample import BackendSample, MachineSample

MIB = 1 << 20
MEMINFO = """\
MemTotal:       16000000 kB
MemFree:         1000000 kB
Buffers:           10000 kB
Cached:          9000000 kB
SwapCached:            0 kB
Active(anon):    2000000 kB
Inactive(anon):        0 kB
Active(file):    4000000 kB
Inactive(file):  3500000 kB
Unevictable:     1200000 kB
Mlocked:         1200000 kB
SwapTotal:       2000000 kB
SwapFree:        1500000 kB
AnonPages:       2000000 kB
Shmem:            300000 kB
SUnreclaim:       100000 kB
HugePages_Total:     100
Hugepagesize:       2048 kB
Hugetlb:          204800 kB
"""
V2 = {
    "memory.current": 800 * MIB,
    "memory.max": 1000 * MIB,
    "memory.high": "max",
    "memory.swap.current": 10 * MIB,
    "memory.stat": f"anon {200 * MIB}\nfile {590 * MIB}\nactive_file {100 * MIB}\ninactive_file {300 * MIB}\n"
    f"unevictable {190 * MIB}\nslab_reclaimable {5 * MIB}\nshmem 0\n",
}
V1 = {
    "memory.usage_in_bytes": 800 * MIB,
    "memory.limit_in_bytes": 1000 * MIB,
    "memory.stat": f"total_rss {200 * MIB}\ntotal_cache {590 * MIB}\ntotal_active_file {100 * MIB}\n"
    f"total_inactive_file {300 * MIB}\ntotal_swap {10 * MIB}\ntotal_shmem 0\ntotal_unevictable {190 * MIB}\n",
}


def cgroup(directory: Path, files: dict[str, object]) -> str:
    directory.mkdir(parents=True)
    (directory / "cgroup.procs").write_text("")
    for name, value in files.items():
        (directory / name).write_text(f"{value}\n")
    return str(directory)


def meminfo(tmp_path: Path, text: str = MEMINFO) -> str:
    path = tmp_path / "meminfo"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(("version", "files"), [(1, V1), (2, V2)], ids=["v1", "v2"])
def test_it_is_what_the_daemon_finds(tmp_path: Path, version: int, files: dict[str, object]) -> None:
    directory = cgroup(tmp_path / "own", files)
    texts = {name: f"{files[name]}\n" if name in files else None for name in cgroup_file_names(version)}
    backend = BackendSample("a", cgroup=parse_cgroup_memory(version, texts))
    daemons = tightest_room(MachineSample(parse_meminfo(MEMINFO)), backend)
    assert daemons is not None
    assert daemons.scope == "cgroup"
    tightest = min(rooms(directory, meminfo(tmp_path)), key=lambda room: room.headroom_bytes)
    assert (tightest.limit_bytes, tightest.headroom_bytes) == (daemons.limit_bytes, daemons.headroom_bytes)
    assert tightest.name == directory


def test_the_machine_counts_locked_memory_and_swap(tmp_path: Path) -> None:
    (machine,) = rooms(None, meminfo(tmp_path))
    daemons = tightest_room(MachineSample(parse_meminfo(MEMINFO)), BackendSample("a"))
    assert daemons is not None
    assert machine.headroom_bytes == daemons.headroom_bytes
    unlocked = MEMINFO.replace("Inactive(file):  3500000", "Inactive(file):  4710000")
    assert rooms(None, meminfo(tmp_path, unlocked))[0].headroom_bytes > machine.headroom_bytes


def test_a_tighter_limit_above_counts(tmp_path: Path) -> None:
    above = cgroup(tmp_path / "slice", {**V2, "memory.max": 850 * MIB})
    own = cgroup(tmp_path / "slice" / "own", V2)
    found = {room.name: room.limit_bytes for room in rooms(own, meminfo(tmp_path))}
    assert found == {"machine": 16000000 << 10, own: 1000 * MIB, above: 850 * MIB}


@pytest.mark.parametrize("limit", ["max", str((1 << 63) - 4096)])
def test_no_limit_is_none(tmp_path: Path, limit: str) -> None:
    files = {**V2, "memory.max": limit} if limit == "max" else {**V1, "memory.limit_in_bytes": limit}
    assert [room.name for room in rooms(cgroup(tmp_path / "own", files), meminfo(tmp_path))] == ["machine"]


def test_memory_high_is_a_limit(tmp_path: Path) -> None:
    directory = cgroup(tmp_path / "own", {**V2, "memory.max": "max", "memory.high": 900 * MIB})
    assert rooms(directory, meminfo(tmp_path))[1].limit_bytes == 900 * MIB


def test_meminfo_that_says_too_little_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Shmem"):
        rooms(None, meminfo(tmp_path, "MemTotal: 1 kB\n"))
    with pytest.raises(OSError, match="none"):
        rooms(None, str(tmp_path / "none"))


@pytest.mark.parametrize(("own", "above", "expected"), [("0", "0", None), ("1", "0", "own"), ("0", "1", "above")])
def test_who_dies_together(tmp_path: Path, own: str, above: str, expected: str | None) -> None:
    cgroup(tmp_path / "slice", {"memory.oom.group": above})
    directory = cgroup(tmp_path / "slice" / "own", {"memory.oom.group": own})
    found = dies_together(directory)
    assert found == {None: None, "own": directory, "above": os.path.dirname(directory)}[expected]


def test_version_1_has_no_such_switch(tmp_path: Path) -> None:
    assert dies_together(cgroup(tmp_path / "own", V1)) is None
    assert dies_together(None) is None
