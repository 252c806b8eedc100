"""The locking process followed from the daemon's side, and what it does to the page cache of a cgroup."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from fakes.own_cgroup import memory_stat, own_cgroup

from moetuned.decide.memory_headroom import tightest_room
from moetuned.host.cgroup import joining, writable_hierarchy
from moetuned.host.memory_lock import LockProgress, MemoryLock, lock_in_cgroup
from moetuned.host.page_cache import PAGE_BYTES, mincore
from moetuned.parse.cgroup_memory import cgroup_file_names, parse_cgroup_memory
from moetuned.schema.model import ByteRange
from moetuned.schema.sample import BackendSample, MachineSample

MIB = 1 << 20


@pytest.fixture
def model(tmp_path: Path) -> str:
    return make_cold_file(tmp_path / "model.gguf", 64 * MIB)


def lock(model: str, megabytes: int = 40, *, cgroup: str | None = None, keep_free_bytes: int = 0) -> MemoryLock:
    return lock_in_cgroup(
        [model],
        [os.stat(model).st_size],
        [ByteRange(0, 4 * MIB, megabytes * MIB)],
        budget_bytes=megabytes * MIB,
        keep_free_bytes=keep_free_bytes,
        keep_free_ratio=0.0,
        rate_bytes_per_second=1 << 33,
        cgroup_directory=cgroup,
    )


def until(lock: MemoryLock, *states: str) -> LockProgress:
    while lock.progress.state not in states:
        assert not lock.progress.ended, lock.progress
        assert select.select([lock], [], [], 30)[0]
        lock.advance()
    return lock.progress


@contextlib.contextmanager
def locking(*arguments: object, **keywords: object) -> Iterator[MemoryLock]:
    running = lock(*arguments, **keywords)  # type: ignore[arg-type]
    try:
        yield running
    finally:
        running.kill()


def resident(path: str, offset: int, length: int) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return mincore(descriptor, offset, length).cached * PAGE_BYTES
    finally:
        os.close(descriptor)


def drop(path: str) -> None:
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_it_holds_just_its_range_and_lets_go_when_asked(model: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with locking(model, 8) as running:
        held = until(running, "held")
        assert (held.locked_bytes, held.goal_bytes) == (8 * MIB, 8 * MIB)
        # Its own memory; the rest is what it has locked.
        assert held.rss_bytes is not None
        assert held.rss_bytes - 8 * MIB < 16 * MIB
        assert resident(model, 0, 64 * MIB) == 8 * MIB
        drop(model)
        assert resident(model, 0, 64 * MIB) == 8 * MIB
        running.stop()
        assert until(running, "released").detail == "it was told to"
        assert running.progress.locked_bytes == 0
        assert running.fileno() == -1
        drop(model)
        assert resident(model, 0, 64 * MIB) == 0
    assert running.advance().state == "released"
    assert len(os.listdir("/proc/self/fd")) == before


def test_killing_it_releases_all(model: str) -> None:
    running = lock(model, 8)
    until(running, "held")
    running.kill()
    assert running.progress == LockProgress("released", 0, 8 * MIB, detail="it was told to")
    drop(model)
    assert resident(model, 0, 64 * MIB) == 0


def test_an_end_that_nobody_asked_for_is_a_failure(model: str) -> None:
    with locking(model, 8) as running:
        until(running, "held")
        handle = os.pidfd_open(running.pid)
        os.close(handle)
        os.kill(running.pid, 9)
        failed = until(running, "failed")
        assert "killed it" in failed.detail
        assert failed.locked_bytes == 0


def test_a_failure_has_its_sentence(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.gguf")
    running = lock_in_cgroup(
        [missing],
        [2 * MIB],
        [ByteRange(0, 0, MIB)],
        budget_bytes=MIB,
        keep_free_bytes=0,
        keep_free_ratio=0.0,
        rate_bytes_per_second=1 << 30,
        cgroup_directory=None,
    )
    assert "none.gguf" in until(running, "failed").detail
    running.kill()


def test_a_file_that_is_replaced_is_let_go(model: str) -> None:
    with locking(model, 8) as running:
        until(running, "held")
        os.replace(make_cold_file(Path(model + ".new"), 64 * MIB), model)
        assert "was replaced" in until(running, "released").detail


HOLD = "import sys\nx = b'x' * int(sys.argv[1])\nprint('alive', flush=True)\nsys.stdin.read()"
READ = "import sys\nwith open(sys.argv[1], 'rb', buffering=0) as f:\n    while f.read(1 << 20): pass"


@pytest.mark.kernel
def test_what_is_locked_stays_under_a_stream_and_goes_once_released(model: str, tmp_path: Path) -> None:
    stream = make_cold_file(tmp_path / "stream", 500 * MIB)
    with own_cgroup(150 * MIB) as directory, locking(model, cgroup=directory) as running:
        until(running, "held")
        # The kernel adds these counters up in batches, a processor each.
        assert memory_stat(directory, "unevictable") >= 39 * MIB
        subprocess.run(joining(directory, [sys.executable, "-c", READ, stream]), check=True)
        assert resident(model, 4 * MIB, 40 * MIB) == 40 * MIB
        running.stop()
        until(running, "released")
        drop(stream)
        for _ in range(3):  # All of it is inactive at first, or of the oldest generation.
            subprocess.run(joining(directory, [sys.executable, "-c", READ, stream]), check=True)
            drop(stream)
        subprocess.run(joining(directory, [sys.executable, "-c", READ, stream]), check=True)
        assert resident(model, 4 * MIB, 40 * MIB) < 20 * MIB
        drop(model)
        drop(stream)


def headroom(directory: str) -> int:
    root = writable_hierarchy()
    assert root is not None
    files = {}
    for name in cgroup_file_names(root.version):
        with contextlib.suppress(OSError):
            files[name] = Path(directory, name).read_text()
    room = tightest_room(MachineSample(), BackendSample("a", cgroup=parse_cgroup_memory(root.version, files)))
    assert room is not None
    return room.headroom_bytes


@pytest.mark.kernel
def test_it_lets_go_when_its_cgroup_nears_the_limit(model: str) -> None:
    with own_cgroup(150 * MIB) as directory, locking(model, cgroup=directory, keep_free_bytes=40 * MIB) as running:
        empty = headroom(directory)
        until(running, "held")
        # What is locked is not to be had, and the daemon's measure says so.
        assert 35 * MIB < empty - headroom(directory) < 60 * MIB
        command = joining(directory, [sys.executable, "-c", HOLD, str(85 * MIB)])
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hog:
            assert hog.stdout is not None
            assert hog.stdout.readline() == b"alive\n"
            assert "memory nears its limit" in until(running, "released").detail
            assert headroom(directory) > 40 * MIB
            hog.communicate(b"")
        drop(model)


@pytest.mark.kernel
def test_the_oom_killer_takes_it_and_not_the_backend(model: str) -> None:
    """Without the look at its limits (none is to stay free): the kernel ends the locking process first."""
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("with swap the kernel swaps instead of killing")
    with own_cgroup(150 * MIB) as directory:
        with locking(model, cgroup=directory, keep_free_bytes=-(1 << 40)) as running:
            until(running, "held")
            command = joining(directory, [sys.executable, "-c", HOLD, str(115 * MIB)])
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hog:
                assert hog.stdout is not None
                assert hog.stdout.readline() == b"alive\n"
                assert "killed it" in until(running, "failed").detail
                hog.communicate(b"")
        drop(model)
