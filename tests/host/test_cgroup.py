"""Memory cgroups of processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from fakes.own_cgroup import hierarchy, own_cgroup, processes_in

from moetuned.host.cgroup import MemoryCgroup, add_process, check_directory, memory_cgroup
from moetuned.host.fs import RealFS

V2 = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def tree(root: Path, cgroup: str, mounts: str, *files: str) -> RealFS:
    for path, text in {"proc/7/cgroup": cgroup, "proc/self/mountinfo": mounts, **dict.fromkeys(files, "0\n")}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return RealFS(str(root))


def test_v1(tmp_path: Path) -> None:
    fs = tree(tmp_path, "4:memory:/llm\n0::/\n", V1 + V2, "sys/fs/cgroup/memory/llm/memory.usage_in_bytes")
    assert memory_cgroup(7, fs) == MemoryCgroup("/sys/fs/cgroup/memory/llm", 1)


def test_v2_goes_up_to_the_one_that_has_the_controller(tmp_path: Path) -> None:
    fs = tree(tmp_path, "0::/user.slice/a/b\n", V2, "sys/fs/cgroup/user.slice/memory.current")
    assert memory_cgroup(7, fs) == MemoryCgroup("/sys/fs/cgroup/user.slice", 2)


@pytest.mark.parametrize("cgroup", ["0::/\n", "0::/nobody/has/it\n"])
def test_the_root_cgroup_is_none(tmp_path: Path, cgroup: str) -> None:
    assert memory_cgroup(7, tree(tmp_path, cgroup, V2)) == MemoryCgroup(version=2)


def test_unknown_says_why(tmp_path: Path) -> None:
    fs = tree(tmp_path, "4:memory:/llm\n", V1)
    assert "no memory.usage_in_bytes" in (memory_cgroup(7, fs).unknown or "")
    assert "process 8" in (memory_cgroup(8, fs).unknown or "")
    (tmp_path / "proc/self/mountinfo").write_text("")
    assert "no mounted" in (memory_cgroup(7, fs).unknown or "")


@pytest.mark.parametrize(
    "directory", ["/tmp", "relative", "/sys/fs/cgroup", "/sys/fs/cgroup/../../../tmp", "/sys/fs/cgroup/no-such"]
)
def test_directories_that_take_no_process(directory: str) -> None:
    assert directory in (check_directory(directory) or "")


@pytest.mark.kernel
def test_a_real_process_is_moved_and_found() -> None:
    root, version = hierarchy()
    child = subprocess.Popen(["sleep", "60"])
    try:
        with own_cgroup() as directory:
            assert check_directory(directory) is None
            add_process(directory, child.pid)
            assert processes_in(directory) == [child.pid]
            assert memory_cgroup(child.pid) == MemoryCgroup(directory, version)
            child.kill()
            child.wait()
            with pytest.raises(OSError, match="No such process"):
                add_process(directory, child.pid)
    finally:
        child.kill()
        child.wait()
    assert os.path.isdir(root)
