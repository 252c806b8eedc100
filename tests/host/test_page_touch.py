"""Touching ranges of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file

from moetuned.host import page_touch
from moetuned.host.page_cache import PAGE_BYTES, ResidencyScan
from moetuned.host.page_touch import TouchError, touch

MIB = 1 << 20


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return [make_cold_file(tmp_path / f"part{part}", 12 * MIB) for part in range(2)]


def never(_seconds: float) -> bool:
    return False


def test_order_progress_and_what_is_touched_twice(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int, int]] = []
    files_read = page_touch._Files.read

    def remember(self: page_touch._Files, piece: page_touch.Range, buffer: memoryview) -> None:
        read.append((piece[0], piece[1] // MIB, piece[2] // MIB))
        files_read(self, piece, buffer)

    monkeypatch.setattr(page_touch._Files, "read", remember)
    progress: list[int] = []
    done = touch(paths, [(0, 0, 10 * MIB)], [(1, MIB, 2 * MIB)], None, never, progress.append)
    assert read == [(1, 1, 2), (1, 1, 2), (0, 0, 8), (0, 8, 2)]
    assert (done, progress) == (12 * MIB, [2 * MIB, 10 * MIB, 12 * MIB])


@pytest.mark.kernel
def test_exactly_the_ranges_become_resident(paths: list[str]) -> None:
    touch(paths, [(0, MIB, 3 * MIB)], [(1, 5 * MIB, MIB)], None, never, lambda _done: None)
    scan = ResidencyScan(paths)
    while not scan.advance():
        pass
    assert scan.result is not None
    assert scan.result.cached == 4 * MIB // PAGE_BYTES


def test_stopping_stops_after_the_piece_and_closes_the_files(paths: list[str]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert (
        touch(paths, [(0, 0, 12 * MIB), (1, 0, 12 * MIB)], [], None, lambda _seconds: True, lambda _done: None)
        == 8 * MIB
    )
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_rate_is_kept_by_waiting_for_the_clock(paths: list[str]) -> None:
    now, waits = 0.0, []

    def wait(seconds: float) -> bool:
        nonlocal now
        now += seconds
        waits.append(seconds)
        return False

    touch(paths, [(0, 0, 12 * MIB)], [], 4 * MIB, wait, lambda _done: None, clock=lambda: now)
    assert waits == [pytest.approx(0.25)] * 12
    assert now == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("ranges", "why"),
    [([(0, 11 * MIB, 2 * MIB)], "ends at"), ([(1, 0, MIB)], "no regular file"), ([(2, 0, 1)], "cannot open")],
)
def test_what_cannot_be_read_says_which_file(paths: list[str], ranges: list[page_touch.Range], why: str) -> None:
    with pytest.raises(TouchError, match=why):
        touch([paths[0], "/dev/zero", "/no/such/file"], ranges, [], None, never, lambda _done: None)
