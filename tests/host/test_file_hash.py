from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from fakes.cold_file import MIB, make_cold_file
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import file_hash
from moetuned.host.file_hash import FileHashError, dropped_runs, hash_file, stamp_of
from moetuned.host.page_cache import PAGE_BYTES, resident_pages
from moetuned.host.sha256_state import HashState, can_resume

PIECE = 64 << 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_hash, "PIECE_BYTES", PIECE)


def on(_done: int, _state: HashState | None) -> bool:
    return True


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 77])
def test_equals_hashlib(tmp_path: Path, size: int):
    path = tmp_path / "f"
    path.write_bytes(os.urandom(size))
    assert hash_file(str(path), on) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_progress_is_told_and_can_stop_it(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(os.urandom(4 * PIECE + 1))
    seen: list[int] = []

    def follow(done: int, _state: HashState | None) -> bool:
        seen.append(done)
        return done < 2 * PIECE

    assert hash_file(str(path), follow) is None
    assert seen == [PIECE, 2 * PIECE]


@pytest.mark.skipif(not can_resume(), reason="no libcrypto here whose hashes can be taken up again")
def test_goes_on_from_any_state(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(os.urandom(3 * PIECE + 5))
    states: list[HashState] = []

    def keep(_done: int, state: HashState | None) -> bool:
        if state is not None:
            states.append(state)
        return True

    whole = hash_file(str(path), keep)
    assert [state.done_bytes for state in states] == [PIECE, 2 * PIECE, 3 * PIECE]
    assert [hash_file(str(path), on, state) for state in states] == [whole] * 3
    with pytest.raises(FileHashError, match="became shorter"):
        hash_file(str(path), on, HashState(1 << 30, states[0].words))


def test_a_file_that_changes_meanwhile_is_no_answer(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(bytes(2 * PIECE))

    def touch(_done: int, _state: HashState | None) -> bool:
        os.utime(path, ns=(1, 1))
        return True

    with pytest.raises(FileHashError, match="was changed while it was read"):
        hash_file(str(path), touch)


def test_a_file_that_shrinks_meanwhile(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(bytes(40 * PIECE))

    def cut(_done: int, _state: HashState | None) -> bool:
        os.truncate(path, 0)
        return True

    with pytest.raises(FileHashError, match="became shorter while it was read"):
        hash_file(str(path), cut)


def test_what_is_no_file(tmp_path: Path):
    with pytest.raises(FileHashError, match="cannot be opened: No such file"):
        hash_file(str(tmp_path / "none"), on)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FileHashError, match="no regular file"):
        hash_file(str(tmp_path / "fifo"), on)


def test_a_disk_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "f"
    path.write_bytes(bytes(3 * PIECE))
    preadv = os.preadv

    def failing(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if offset >= PIECE:
            raise OSError(5, "Input/output error")
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(FileHashError, match=f"at byte {PIECE} or soon after.*the disk is failing"):
        hash_file(str(path), on)


def test_a_stamp_tells_a_change(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(b"1")
    before = stamp_of(str(path))
    assert before == stamp_of(str(path))
    os.utime(path, ns=(5, 5))
    assert before != stamp_of(str(path))


@given(st.lists(st.booleans()))
def test_runs_hold_exactly_what_was_not_resident(pages: list[bool]):
    runs = list(dropped_runs(bytes(pages)))
    inside = [page for first, last in runs for page in range(first, last)]
    assert inside == [page for page, resident in enumerate(pages) if not resident]
    assert all(last < following for (_, last), (following, _) in pairwise(runs))


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: looks at what the page cache holds")
def test_what_is_resident_stays_as_it_was(tmp_path: Path):
    path = make_cold_file(tmp_path / "f", 6 * MIB + 5000)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for offset in (0, PAGE_BYTES * 7, 3 * MIB, 6 * MIB):
            os.pread(descriptor, 3 * PAGE_BYTES, offset)
        before = resident_pages(descriptor, 0, os.path.getsize(path))
        assert 0 < before.count(1) < 20
        assert hash_file(path, on) is not None
        after = resident_pages(descriptor, 0, os.path.getsize(path))
        assert not any(now > was for now, was in zip(after, before, strict=True))
        assert before.count(1) - after.count(1) <= 1  # The kernel may reclaim a page at any time.
    finally:
        os.close(descriptor)


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: looks at what the page cache holds")
def test_an_earlier_read_ahead_is_not_gone_on_with(tmp_path: Path):
    path = make_cold_file(tmp_path / "f", 64 * MIB)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.pread(descriptor, MIB, 0)  # read ahead of, so one of the pages carries its mark
        pages = 64 * MIB // PAGE_BYTES
        if resident_pages(descriptor, 0, 64 * MIB).count(1) > pages // 4:
            pytest.skip("the read-ahead of this disk is too large for so small a file")
        assert hash_file(path, on) is not None
        # Some of the first read-ahead may have been on its way still; gone on with, it reaches the end.
        assert resident_pages(descriptor, 0, 64 * MIB).count(1) < pages // 2
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("how", ["no O_DIRECT", "opened but not read"])
def test_file_systems_that_cannot_do_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str):
    path = tmp_path / "f"
    path.write_bytes(os.urandom(5 * PIECE + 77))
    plain_open, preadv = os.open, os.preadv

    def refusing_open(name: str, flags: int) -> int:
        if how == "no O_DIRECT" and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain_open(name, flags)

    def refusing_preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if how == "opened but not read" and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "open", refusing_open)
    monkeypatch.setattr(os, "preadv", refusing_preadv)
    found = hash_file(str(path), on)
    monkeypatch.undo()
    assert found == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: becomes another user")
def test_another_users_file_leaves_nothing_behind():
    with tempfile.TemporaryDirectory(prefix="moetuned-test-") as directory:
        os.chmod(directory, 0o755)
        path = make_cold_file(Path(directory) / "f", 3 * MIB + 5)
        os.chmod(path, 0o644)
        found = hash_as_nobody(path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            assert resident_pages(descriptor, 0, os.path.getsize(path)).count(1) == 0
        finally:
            os.close(descriptor)
        assert found == hashlib.sha256(Path(path).read_bytes()).hexdigest()


def hash_as_nobody(path: str) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            os.write(writing, (hash_file(path, on) or "").encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found = answer.read()
    os.waitpid(child, 0)
    return found
