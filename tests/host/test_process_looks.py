from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.process_looks import Who, proc_directory


def process(root: Path, pid: int, name: str = "cat", parent: int = 1, cgroup: str = "0::/\n", **files: str) -> None:
    directory = root / "proc" / str(pid)
    directory.mkdir(parents=True, exist_ok=True)
    rest = ["S", str(parent)] + ["0"] * 17 + [str(pid * 10)] + ["0"] * 10
    (directory / "stat").write_text(f"{pid} ({name}) {' '.join(rest)}\n")
    (directory / "cgroup").write_text(cgroup)
    for file, text in files.items():
        (directory / file).write_text(text)


@pytest.mark.parametrize("name", ["cat", "a) S 1 2 (b", "x\ny", ""])
def test_who_a_process_is_whatever_it_calls_itself(tmp_path: Path, name: str) -> None:
    process(tmp_path, 7, name, parent=3, cgroup="0::/system.slice/backup.service\n")
    with proc_directory(str(tmp_path)) as proc:
        assert proc.pids() == [7]
        assert proc.who(7) == Who(
            7, 70, 3, name.replace("\n", "?") or "?", "backup.service", frozenset({"/system.slice/backup.service"})
        )
        assert proc.who(8) is None


@pytest.mark.parametrize("stat", ["", "7 (cat", "7 (cat) S", "7 (cat) S x " + "0 " * 30])
def test_a_stat_that_tells_nothing_is_nobody(tmp_path: Path, stat: str) -> None:
    process(tmp_path, 7)
    (tmp_path / "proc/7/stat").write_text(stat)
    with proc_directory(str(tmp_path)) as proc:
        assert proc.who(7) is None


def test_this_process() -> None:
    with proc_directory() as proc:
        who = proc.who(os.getpid())
        assert os.getpid() in proc.pids()
    assert who is not None
    assert who.parent == os.getppid()
