from __future__ import annotations

import os
from pathlib import Path

from test_process_looks import process

from moetuned.host.process_looks import proc_directory
from moetuned.host.top_growers import MOST, Growers

PAGE = os.sysconf("SC_PAGE_SIZE")


def set_memory(root: Path, pid: int, resident_kib: int, swapped_kib: int = 0, name: str = "p") -> None:
    process(
        root, pid, name,
        statm=f"9999 {resident_kib * 1024 // PAGE + 10} 10 1 0 1 0\n",
        status=f"Name:\t{name}\nRssAnon:\t{resident_kib} kB\nVmSwap:\t{swapped_kib} kB\n",
    )  # fmt: skip


def look(growers: Growers, root: Path) -> dict[int, int]:
    with proc_directory(str(root)) as proc:
        return {one.who.pid: one.anonymous_bytes for one in growers.look(proc, proc.pids())}


def test_the_largest_first_with_what_is_in_swap(tmp_path: Path) -> None:
    for pid in range(1, 40):
        set_memory(tmp_path, pid, pid * 1024, swapped_kib=100)
    found = look(Growers(), tmp_path)
    assert list(found) == list(range(39, 39 - MOST, -1))
    assert found[39] == (39 * 1024 + 100) * 1024


def test_one_that_was_swapped_out_is_not_lost(tmp_path: Path) -> None:
    for pid in range(1, 40):
        set_memory(tmp_path, pid, 1024)
    set_memory(tmp_path, 50, 1 << 20)
    growers = Growers()
    assert look(growers, tmp_path)[50] == 1 << 30
    set_memory(tmp_path, 50, 8, swapped_kib=1 << 20)
    assert look(growers, tmp_path)[50] == (1 << 30) + 8192


def test_what_tells_nothing_is_left_out(tmp_path: Path) -> None:
    set_memory(tmp_path, 1, 1024)
    set_memory(tmp_path, 2, 1024)
    set_memory(tmp_path, 3, 1024)
    (tmp_path / "proc/1/statm").write_text("1 x")
    (tmp_path / "proc/2/status").write_text("RssAnon: 1024 k")
    assert list(look(Growers(), tmp_path)) == [3]
