"""Locking ranges of files: what is resident, and what comes in later."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file

from moetuned.host import locked_pages
from moetuned.host.locked_pages import PAGE_BYTES, LockedRange, LockError, allow_locking
from moetuned.host.page_cache import mincore

MIB = 1 << 20


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(make_cold_file(tmp_path / "model.gguf", 4 * MIB), os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def locked_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmLck:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmLck")


def resident(descriptor: int, offset: int, length: int) -> int:
    return mincore(descriptor, offset, length).cached * PAGE_BYTES


def test_marking_reads_nothing_and_populating_reads_just_its_piece(opened: int) -> None:
    before = locked_bytes()
    locked = LockedRange(opened, MIB, 2 * MIB)
    assert locked_bytes() == before + 2 * MIB
    assert resident(opened, 0, 4 * MIB) == 0
    locked.populate(MIB, 256 << 10)
    assert resident(opened, 2 * MIB, 256 << 10) == 256 << 10
    assert resident(opened, 0, 4 * MIB) == 256 << 10
    locked.close()
    assert locked_bytes() == before
    locked.close()


def test_locked_pages_cannot_be_dropped_until_they_are_let_go(opened: int) -> None:
    locked = LockedRange(opened, 0, MIB)
    locked.populate(0, MIB)
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    assert resident(opened, 0, MIB) == MIB
    locked.close()
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    assert resident(opened, 0, MIB) == 0


def test_a_kernel_without_populate_locks_all_the_same(opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked_pages, "_MADV_POPULATE_READ", 0x7FFF)  # EINVAL, as before Linux 5.14
    locked = LockedRange(opened, 0, MIB)
    locked.populate(0, MIB)
    assert resident(opened, 0, MIB) == MIB
    locked.close()


def test_a_file_that_was_cut_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = make_cold_file(tmp_path / "cut.gguf", 2 * MIB)
    descriptor = os.open(path, os.O_RDWR)
    locked = LockedRange(descriptor, 0, 2 * MIB)
    os.ftruncate(descriptor, MIB)
    with pytest.raises(LockError, match="ends before the model does"):
        locked.populate(MIB, MIB)
    locked.close()
    os.close(descriptor)


def test_a_c_library_without_mlock2_is_a_sentence(opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked_pages, "_mlock2", None)
    with pytest.raises(LockError, match="no mlock2"):
        LockedRange(opened, 0, MIB)


def test_what_the_kernel_refuses_names_the_limit() -> None:
    message = str(locked_pages._refused(12, MIB))
    assert "LimitMEMLOCK=infinity" in message
    assert "cannot lock 1048576 bytes" in message
    assert "LimitMEMLOCK" not in str(locked_pages._refused(22, MIB))


@pytest.mark.parametrize(
    ("now", "refuses_hard", "expected"),
    [
        ((4096, 8192), False, (1000000, 1000000)),
        ((4096, 8192), True, (8192, 8192)),
        ((4096, -1), False, (1000000, -1)),
        ((-1, -1), False, None),
        ((2000000, 2000000), False, None),
    ],
)
def test_the_limit_is_raised_as_far_as_allowed(
    now: tuple[int, int],
    refuses_hard: bool,
    expected: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[tuple[int, int]] = []

    def setrlimit(_which: int, wanted: tuple[int, int]) -> None:
        if refuses_hard and wanted[1] > now[1]:
            raise ValueError("not allowed to raise maximum limit")
        done.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda _which: now)
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    allow_locking(1000000)
    assert done == ([] if expected is None else [expected])
