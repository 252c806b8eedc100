"""Touching ranges of files."""

from __future__ import annotations

import errno
import os
import select
import time
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import page_touch, uncached
from moetuned.host.page_cache import PAGE_BYTES, ResidencyScan
from moetuned.host.page_touch import (
    AGAIN,
    MAPPED,
    ONCE,
    STREAM,
    Range,
    TouchError,
    Touching,
    jobs,
    multi_gen_lru,
    split,
)

MIB = 1 << 20
FAST = 1 << 40
"""A rate that limits nothing: one thread works, in order."""


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return [make_cold_file(tmp_path / f"part{part}", 12 * MIB) for part in range(2)]


def finish(touching: Touching) -> Touching:
    touching.start()
    while not touching.ended:
        assert select.select([touching.fileno()], [], [], 30)[0]
        os.eventfd_read(touching.fileno())
    touching.close()
    return touching


def cached_bytes(paths: list[str]) -> int:
    scan = ResidencyScan(paths)
    while not scan.advance():
        pass
    assert scan.result is not None
    return scan.result.cached * PAGE_BYTES


def remember_reads(monkeypatch: pytest.MonkeyPatch) -> list[Range]:
    """What is read from now on, in MiB."""
    read: list[Range] = []
    files_read = page_touch._Files.read

    def remember(self: page_touch._Files, piece: Range, *, in_order: bool = False) -> None:
        read.append((piece[0], piece[1] // MIB, piece[2] // MIB))
        files_read(self, piece, in_order=in_order)

    monkeypatch.setattr(page_touch._Files, "read", remember)
    return read


def test_order_and_what_is_read_twice(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read = remember_reads(monkeypatch)
    touching = finish(Touching(paths, [(0, 0, 10 * MIB)], [(1, MIB, 2 * MIB)], rate_bytes_per_second=FAST))
    assert read == [(1, 1, 2), (1, 1, 2), (0, 0, 4), (0, 4, 4), (0, 8, 2)]
    assert touching.done_bytes == 12 * MIB
    assert touching.error is None


@pytest.mark.kernel
@pytest.mark.parametrize("rate", [None, FAST])
def test_exactly_the_ranges_become_resident(paths: list[str], rate: int | None) -> None:
    finish(Touching(paths, [(0, MIB, 3 * MIB)], [(1, 5 * MIB, MIB)], rate_bytes_per_second=rate))
    assert cached_bytes(paths) == 4 * MIB


@pytest.mark.kernel
def test_a_long_range_is_streamed_and_ends_where_it_ends(tmp_path: Path) -> None:
    paths = [make_cold_file(tmp_path / "model", 160 * MIB)]
    finish(Touching(paths, [(0, 3 * MIB, 100 * MIB)], []))
    assert cached_bytes(paths) == 100 * MIB
    finish(Touching(paths, [(0, 0, 160 * MIB)], []))
    assert cached_bytes(paths) == 160 * MIB


@pytest.mark.kernel
@pytest.mark.parametrize("advice", [22, None])
def test_what_is_mapped_becomes_resident_and_is_not_read(
    paths: list[str], advice: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = remember_reads(monkeypatch)
    touching = Touching(paths, [], [(0, 0, 12 * MIB), (1, 100, 1)], mapped=True)
    assert touching.populate is not None
    touching.populate.advice = advice
    finish(touching)
    assert touching.done_bytes == 12 * MIB + 1
    assert read == []
    assert cached_bytes(paths[:1]) == 12 * MIB
    assert cached_bytes(paths[1:]) >= PAGE_BYTES


def test_an_advice_that_the_kernel_does_not_know_is_given_up(paths: list[str]) -> None:
    touching = Touching(paths, [], [(0, 0, MIB)], mapped=True)
    assert touching.populate is not None
    touching.populate.advice = 0x7FFF
    finish(touching)
    assert touching.populate.advice is None
    assert (touching.error, touching.done_bytes) == (None, MIB)


def test_a_file_system_that_cannot_splice_is_read(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.EINVAL, "")

    monkeypatch.setattr(os, "sendfile", refuse)
    touching = finish(Touching(paths, [(0, 0, MIB + 5)], []))
    assert (touching.error, touching.done_bytes) == (None, MIB + 5)


def test_a_pause_lets_no_piece_begin(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    touching = Touching(paths, [(0, 0, 12 * MIB)], [], rate_bytes_per_second=FAST)
    paused: list[bool] = []

    def read(_self: page_touch._Files, _piece: Range, *, in_order: bool = False) -> None:
        paused.append(touching._paused)
        if len(paused) == 1:
            touching.pause()

    monkeypatch.setattr(page_touch._Files, "read", read)
    touching.start()
    while touching.done_bytes == 0 or not touching.idle:
        os.sched_yield()
    assert touching.done_bytes == 4 * MIB
    touching.resume()
    while not touching.ended:
        select.select([touching.fileno()], [], [], 30)
    touching.close()
    assert paused == [False, False, False]
    assert touching.done_bytes == 12 * MIB


@pytest.mark.parametrize("paused", [False, True])
def test_stopping_begins_nothing_more_and_closes_the_files(
    paths: list[str], monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    touching = Touching(paths, [(0, 0, 12 * MIB), (1, 0, 12 * MIB)], [], rate_bytes_per_second=FAST)
    files_read = page_touch._Files.read

    def read(self: page_touch._Files, piece: Range, *, in_order: bool = False) -> None:
        files_read(self, piece, in_order=in_order)
        if paused:
            touching.pause()
        touching.stop()
        touching.pause()  # Too late: nobody would resume it.

    monkeypatch.setattr(page_touch._Files, "read", read)
    assert finish(touching).done_bytes == 4 * MIB
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_rate_is_kept_by_waiting_for_the_clock(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(uncached, "_is_told", lambda _descriptor: False)
    finish(Touching(paths, [(0, 0, 12 * MIB)], [], rate_bytes_per_second=4 * MIB, clock=lambda: now, sleep=sleep))
    # It begins a tenth of a second behind, and the last quarter of a second is not waited for.
    assert now == pytest.approx(2.65)


@pytest.mark.kernel
def test_what_is_in_memory_already_does_not_count_for_the_rate(paths: list[str]) -> None:
    """Warming again after Ctrl-C takes the time of what is missing."""
    if cached_bytes(paths[:1]):
        pytest.skip("files are in memory here; set TMPDIR to a directory on a disk")
    finish(Touching(paths, [], [(0, 0, 8 * MIB)]))
    assert cached_bytes(paths[:1]) == 8 * MIB
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    finish(Touching(paths, [(0, 0, 12 * MIB)], [], rate_bytes_per_second=MIB, clock=lambda: now, sleep=sleep))
    assert now == pytest.approx(3.65, abs=0.2), "4 MiB, of which the last quarter is not waited for"
    waited = []
    for _ in range(5):  # The kernel may take a page in between, where something else fills memory.
        finish(Touching(paths, [], [(0, 0, 12 * MIB)]))
        began = now
        finish(Touching(paths, [(0, 100, 12 * MIB - 100)], [], rate_bytes_per_second=1, clock=lambda: now, sleep=sleep))
        waited.append(now - began)
        if waited[-1] == 0.0:
            break
    assert waited[-1] == 0.0, waited


@pytest.mark.kernel
def test_what_read_ahead_reads_counts_for_the_rate(paths: list[str]) -> None:
    """Where the start of a file was read in order, as a header is, read-ahead goes on with whoever reads on."""
    if cached_bytes(paths[:1]):
        pytest.skip("files are in memory here; set TMPDIR to a directory on a disk")
    descriptor = os.open(paths[0], os.O_RDONLY)
    for at in range(0, MIB, 65536):
        os.pread(descriptor, 65536, at)
    os.close(descriptor)
    there = cached_bytes(paths[:1])
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        time.sleep(0.01)

    finish(Touching(paths, [(0, 0, 12 * MIB)], [], rate_bytes_per_second=MIB, clock=lambda: now, sleep=sleep))
    assert now > (12 * MIB - there) / MIB * 0.6


def test_a_limit_counts_from_now_on_and_the_lower_one_wins(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now, begun = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    touching = Touching(paths, [(0, 0, 12 * MIB)], [], rate_bytes_per_second=FAST, clock=lambda: now, sleep=sleep)

    def read(_self: page_touch._Files, _piece: Range, *, in_order: bool = False) -> None:
        begun.append(now)
        touching.limit(None if len(begun) == 2 else 4 * MIB)

    monkeypatch.setattr(page_touch._Files, "read", read)
    touching.limit(2 * MIB)
    finish(touching)
    assert begun == pytest.approx([0.0, 2.0 - 0.1, 3.0 - 0.1], abs=0.01)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(
    ("one", "why"),
    [((0, 11 * MIB, 2 * MIB), "ends at"), ((1, 0, MIB), "no regular file"), ((2, 0, 1), "cannot open")],
)
def test_what_cannot_be_read_says_which_file(paths: list[str], one: Range, why: str, mapped: bool) -> None:
    ranges, twice = ([], [one]) if mapped else ([one], [])
    touching = finish(Touching([paths[0], "/dev/zero", "/no/such/file"], ranges, twice, mapped=mapped))
    assert isinstance(touching.error, TouchError)
    assert why in str(touching.error)


@pytest.mark.parametrize(("text", "on"), [("0x0007\n", True), ("0x0000\n", False), ("0x0006\n", False), ("?", False)])
def test_the_switch_of_the_multi_gen_lru(tmp_path: Path, text: str, on: bool) -> None:
    switch = tmp_path / "enabled"
    switch.write_text(text)
    assert multi_gen_lru(str(switch)) is on
    assert not multi_gen_lru(str(tmp_path / "none"))


RANGES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300 * MIB), st.integers(0, 300 * MIB)), max_size=8)


@given(RANGES, RANGES, st.sampled_from([AGAIN, MAPPED]), st.integers(0, 64) | st.none())
def test_jobs_hold_each_byte_once_and_in_order(
    ranges: list[Range], twice: list[Range], stay: str, margin_mib: int | None
) -> None:
    def stream_end(_part: int, offset: int, length: int) -> int:
        return offset if margin_mib is None else max(offset, offset + length - margin_mib * MIB)

    found = list(jobs(ranges, twice, stay, 4 * MIB, stream_end))
    for how, parts in found:
        total = sum(length for _, _, length in parts)
        assert 0 < total <= (page_touch.STREAM_BYTES if how == STREAM else 4 * MIB)
        assert how != STREAM or len(parts) == 1
    kinds = [how == stay for how, _ in found]
    assert kinds == sorted(kinds, reverse=True)
    assert {how for how, _ in found} <= {stay, ONCE, STREAM}
    touched = [part for _, parts in found for part in parts]
    assert joined(touched) == joined([*twice, *ranges])


def joined(ranges: list[Range]) -> list[Range]:
    """The same bytes in the same order, with neighbours as one."""
    result: list[Range] = []
    for part, offset, length in ranges:
        if result and result[-1][0] == part and sum(result[-1][1:]) == offset:
            result[-1] = part, result[-1][1], result[-1][2] + length
        elif length:
            result.append((part, offset, length))
    return result


def test_a_range_in_pieces() -> None:
    assert list(split((1, 5, 10), 4)) == [(1, 5, 4), (1, 9, 4), (1, 13, 2)]
