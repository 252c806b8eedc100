"""One tick's files: kept descriptors, files that come and go, and processes that end."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest
from fakes.own_cgroup import own_cgroup

from moetuned.host.processes import identify
from moetuned.host.sampler import Sampler
from moetuned.schema.sample import BackendIdentity, RawBackend


class Clock:
    def monotonic(self) -> float:
        return 12.5

    def wall(self) -> float:
        return 1e9


STAT = "7 (a) b) S 1 7 7 0 -1 0 0 0 3 0 1 2 0 0 20 0 1 0 {start} 0 0\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in {
        "proc/meminfo": "MemTotal: 1 kB\n",
        "proc/vmstat": "pgmajfault 1\n" * 20000,
        "proc/7/stat": STAT.format(start=99),
        "proc/7/status": "Name:\ta\n",
        "sys/block/vda/stat": "1 2\n",
        "sys/fs/cgroup/x/memory.current": "5\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


BACKEND = BackendIdentity(
    name="b", pid=7, cgroup_directory="/sys/fs/cgroup/x", cgroup_version=2, disks=("vda",), start_ticks=99
)


def test_reads_everything_that_is_there_and_none_for_the_rest(root: Path) -> None:
    sampler = Sampler(Clock(), str(root))
    rest = {"b": RawBackend(http={"/health": "ok"})}
    raw = sampler.read([BACKEND], rest)
    assert (raw.t, raw.wall, raw.backends) == (12.5, 1e9, rest)
    assert raw.files["/proc/vmstat"] == "pgmajfault 1\n" * 20000
    assert raw.files["/proc/7/stat"] == STAT.format(start=99)
    assert raw.files["/sys/block/vda/stat"] == "1 2\n"
    assert raw.files["/sys/fs/cgroup/x/memory.current"] == "5\n"
    assert raw.files["/proc/pressure/memory"] is None
    assert raw.files["/proc/7/io"] is None
    sampler.close()


def test_descriptors_are_kept_and_read_again_from_the_start(root: Path) -> None:
    sampler = Sampler(Clock(), str(root))
    sampler.read([BACKEND], {})
    before = open_files()
    (root / "proc/meminfo").write_text("MemTotal: 2 kB\n")
    assert sampler.read([BACKEND], {}).files["/proc/meminfo"] == "MemTotal: 2 kB\n"
    assert open_files() == before
    sampler.close()


def test_failures_are_counted_and_logged_once_a_change(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    sampler = Sampler(Clock(), str(root))
    path = "/proc/pressure/io"
    with caplog.at_level(logging.INFO, "moetuned.host.sampler"):
        for _ in range(3):
            assert sampler.read([], {}).files[path] is None
        assert sampler.troubles[path] == "No such file or directory"
        (root / "proc/pressure").mkdir()
        (root / path[1:]).write_text("some\n")
        for _ in range(2):
            assert sampler.read([], {}).files[path] == "some\n"
    assert sampler.errors == {path: 3, "/proc/pressure/memory": 5}
    assert path not in sampler.troubles
    assert [record.getMessage() for record in caplog.records if path in record.getMessage()] == [
        f"cannot read {path}: No such file or directory",
        f"{path} can be read again",
    ]
    sampler.close()


def test_not_a_word_of_the_files_of_a_process_that_ended(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    sampler = Sampler(Clock(), str(root))
    with caplog.at_level(logging.INFO, "moetuned.host.sampler"):
        sampler.read([BACKEND], {})
        caplog.clear()
        sampler.close()
        for name in ("stat", "status", "io"):
            (root / f"proc/7/{name}").unlink(missing_ok=True)
        for _ in range(2):
            assert sampler.read([BACKEND], {}).files["/proc/7/io"] is None
    assert [record for record in caplog.records if "/proc/7/" in record.getMessage()] == []
    assert sampler.errors["/proc/7/io"] == 2
    sampler.close()


def test_what_belongs_to_a_backend_that_left_is_closed(root: Path) -> None:
    sampler = Sampler(Clock(), str(root))
    sampler.read([], {})
    before = open_files()
    sampler.read([BACKEND], {})
    assert len(open_files()) > len(before)
    assert not [path for path in sampler.read([], {}).files if "/7/" in path]
    assert open_files() == before
    assert "/proc/7/io" not in sampler.errors
    sampler.close()


def test_close_closes_all_and_reading_goes_on(root: Path) -> None:
    before = open_files()
    sampler = Sampler(Clock(), str(root))
    first = sampler.read([BACKEND], {})
    sampler.close()
    assert open_files() == before
    assert sampler.read([BACKEND], {}) == first
    sampler.close()


def test_another_process_with_the_pid_is_not_the_backend(root: Path) -> None:
    (root / "proc/7/stat").write_text(STAT.format(start=100))
    sampler = Sampler(Clock(), str(root))
    files = sampler.read([BACKEND], {}).files
    assert [files[f"/proc/7/{name}"] for name in ("stat", "status", "io")] == [None, None, None]
    sampler.close()


def test_a_process_that_starts_later_with_the_pid_is_not_the_backend_that_was_gone(root: Path) -> None:
    identity = BackendIdentity(name="b", pid=8)
    sampler = Sampler(Clock(), str(root))
    assert sampler.read([identity], {}).files["/proc/8/stat"] is None
    (root / "proc/8").mkdir()
    (root / "proc/8/stat").write_text(STAT.format(start=5))
    assert sampler.read([identity], {}).files["/proc/8/stat"] is None
    assert sampler.read([BackendIdentity(name="b", pid=8, start_ticks=5)], {}).files["/proc/8/stat"] is not None
    sampler.close()


def test_a_real_process_is_unknown_after_its_end() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        found = identify(child.pid)
        assert found is not None
        identity = BackendIdentity(name="b", pid=child.pid, start_ticks=found.start_ticks)
        sampler = Sampler(Clock())
        assert "sleep" in (sampler.read([identity], {}).files[f"/proc/{child.pid}/stat"] or "")
    finally:
        child.kill()
        child.wait()
    files = sampler.read([identity], {}).files
    assert [text for path, text in files.items() if path.startswith(f"/proc/{child.pid}/")] == [None, None, None]
    assert files["/proc/meminfo"]
    sampler.close()


@pytest.mark.kernel
def test_a_cgroup_that_is_made_again_is_read_again() -> None:
    with own_cgroup() as directory:
        version = 1 if os.path.exists(f"{directory}/memory.usage_in_bytes") else 2
        name = "memory.usage_in_bytes" if version == 1 else "memory.current"
        identity = BackendIdentity(name="b", cgroup_directory=directory, cgroup_version=version)
        sampler = Sampler(Clock())
        assert sampler.read([identity], {}).files[f"{directory}/{name}"] is not None
        os.rmdir(directory)
        assert sampler.read([identity], {}).files[f"{directory}/{name}"] is None
        os.mkdir(directory)
        assert sampler.read([identity], {}).files[f"{directory}/{name}"] is not None
        sampler.close()


def open_files() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")}
