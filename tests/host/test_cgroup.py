"""Memory cgroups of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.own_cgroup import hierarchy, own_cgroup

from moetuned.host.cgroup import (
    JOIN_FAILED_CODE,
    Hierarchy,
    MemoryCgroup,
    add_process,
    check_directory,
    joining,
    memory_cgroup,
    processes_in,
    writable_hierarchy,
)
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


def files(root: Path, texts: dict[str, str]) -> None:
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_those_above_that_have_a_limit_are_told(tmp_path: Path) -> None:
    top = "sys/fs/cgroup/user.slice"
    fs = tree(tmp_path, "0::/user.slice/u/s/llm\n", V2, f"{top}/u/s/llm/memory.current")
    files(
        tmp_path,
        {
            f"{top}/memory.max": "max\n",
            f"{top}/memory.high": "8589934592\n",
            f"{top}/u/memory.max": "max\n",
            f"{top}/u/memory.high": "max\n",
            f"{top}/u/s/memory.max": "4294967296\n",
            f"{top}/u/s/llm/memory.max": "1073741824\n",
        },
    )
    found = memory_cgroup(7, fs)
    assert found.directory == f"/{top}/u/s/llm"
    assert found.limited_above == (f"/{top}/u/s", f"/{top}")


def test_version_1_above(tmp_path: Path) -> None:
    top = "sys/fs/cgroup/memory"
    fs = tree(tmp_path, "4:memory:/docker/x/init\n", V1, f"{top}/docker/x/init/memory.usage_in_bytes")
    files(
        tmp_path,
        {
            f"{top}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{top}/docker/memory.limit_in_bytes": "9223372036854771712\n",
            f"{top}/docker/x/memory.limit_in_bytes": "8589934592\n",
        },
    )
    assert memory_cgroup(7, fs).limited_above == (f"/{top}/docker/x",)


@pytest.mark.parametrize(
    ("version", "texts"),
    [
        (2, {"sys/fs/cgroup/memory.current": "1\n", "sys/fs/cgroup/memory.max": "8589934592\n"}),
        (1, {"sys/fs/cgroup/memory/memory.limit_in_bytes": "8589934592\n"}),
    ],
)
def test_in_a_container_the_root_that_is_seen_is_its_own(tmp_path: Path, version: int, texts: dict[str, str]) -> None:
    fs = tree(tmp_path, "4:memory:/\n0::/\n", V2 if version == 2 else V1)
    files(tmp_path, texts)
    found = memory_cgroup(7, fs)
    root = "/sys/fs/cgroup" if version == 2 else "/sys/fs/cgroup/memory"
    assert (found.directory, found.seen_root, found.counted_in) == (None, root, root)


def test_the_root_of_a_machine_of_version_1_is_none(tmp_path: Path) -> None:
    fs = tree(tmp_path, "4:memory:/\n", V1, "sys/fs/cgroup/memory/memory.usage_in_bytes")
    files(tmp_path, {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"})
    assert memory_cgroup(7, fs) == MemoryCgroup(version=1)


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


class MountedAs(RealFS):
    """The real files, but other mounts; None: they cannot be read."""

    def __init__(self, mounts: str | None) -> None:
        super().__init__()
        self.mounts = mounts

    def read_text(self, path: str, limit_bytes: int = 1 << 20) -> str:
        if path != "/proc/self/mountinfo":
            return super().read_text(path, limit_bytes)
        if self.mounts is None:
            raise PermissionError(path)
        return self.mounts


def mounted(v1: Path | None = None, v2: Path | None = None) -> MountedAs:
    lines = [] if v1 is None else [V1.replace("/sys/fs/cgroup/memory", str(v1))]
    lines += [] if v2 is None else [V2.replace("/sys/fs/cgroup", str(v2))]
    return MountedAs("".join(reversed(lines)))


def test_memory_cgroups_are_made_where_the_controller_is(tmp_path: Path) -> None:
    v1, v2 = tmp_path / "v1", tmp_path / "v2"
    v1.mkdir()
    v2.mkdir()
    assert writable_hierarchy(mounted(v1=v1, v2=v2)) == Hierarchy(str(v1), 1), "on a hybrid machine v1 has the memory"
    assert writable_hierarchy(mounted(v2=v2)) is None, "no cgroup.subtree_control: nothing is given on"
    (v2 / "cgroup.subtree_control").write_text("cpu pids\n")
    assert writable_hierarchy(mounted(v2=v2)) is None
    (v2 / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert writable_hierarchy(mounted(v2=v2)) == Hierarchy(str(v2), 2)


def test_nowhere_to_make_a_cgroup(tmp_path: Path) -> None:
    assert writable_hierarchy(MountedAs(None)) is None
    assert writable_hierarchy(mounted()) is None
    assert writable_hierarchy(mounted(v1=tmp_path / "gone", v2=tmp_path / "gone too")) is None


def test_a_program_that_cannot_join_does_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    done = subprocess.run(joining(str(tmp_path / "gone"), ["touch", str(ran)]), stderr=subprocess.PIPE, check=False)
    assert done.returncode == JOIN_FAILED_CODE
    assert not ran.exists()


def test_a_program_that_joins_gets_its_words_untouched(tmp_path: Path) -> None:
    words = ["$(exit 3)", "a b", "", "; exit 4", "-e"]
    command = joining(str(tmp_path), ["printf", "%s\\n", *words])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "".join(f"{word}\n" for word in words)
    assert (tmp_path / "cgroup.procs").read_text().strip().isdigit()


@pytest.mark.kernel
def test_a_real_process_joins_before_it_runs() -> None:
    with own_cgroup() as directory:
        command = joining(directory, [sys.executable, "-c", "print(open('/proc/self/cgroup').read())"])
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        assert f"/{os.path.basename(directory)}\n" in done.stdout


@pytest.mark.kernel
def test_a_real_process_is_moved_and_found() -> None:
    root = hierarchy()
    child = subprocess.Popen(["sleep", "60"])
    try:
        with own_cgroup() as directory:
            assert check_directory(directory) is None
            add_process(directory, child.pid)
            assert processes_in(directory) == [child.pid]
            found = memory_cgroup(child.pid)
            assert (found.directory, found.version, found.unknown) == (directory, root.version, None)
            child.kill()
            child.wait()
            with pytest.raises(OSError, match="No such process"):
                add_process(directory, child.pid)
    finally:
        child.kill()
        child.wait()
    assert os.path.isdir(root.directory)


@pytest.mark.kernel
def test_a_real_limit_above_is_found() -> None:
    with own_cgroup(200 << 20) as directory:
        inner = f"{directory}/inner"
        if hierarchy().version == 2:
            Path(f"{directory}/cgroup.subtree_control").write_text("+memory")
        os.mkdir(inner)
        child = subprocess.Popen(joining(inner, ["sleep", "60"]))
        try:
            while Path(f"{inner}/cgroup.procs").read_text().strip() != str(child.pid):
                assert child.poll() is None
            found = memory_cgroup(child.pid)
            assert (found.directory, found.limited_above[0]) == (inner, directory)
        finally:
            child.kill()
            child.wait()
            os.rmdir(inner)
