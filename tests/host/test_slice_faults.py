"""Slices faulted in from a real file: which pages are read, what is dropped, and errors as numbers."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import slice_faults
from moetuned.host.page_cache import PAGE_BYTES, resident_pages
from moetuned.host.slice_faults import drop, map_slice, open_part, populate, surroundings, unmap
from moetuned.schema.model import ByteRange

KIB, MIB = 1 << 10, 1 << 20
FILE = 32 * MIB


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[int]:
    """A file of which nothing is in memory, and of which pread(2) reads nothing ahead."""
    descriptor = open_part(make_cold_file(tmp_path / "model", FILE))
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def resident(descriptor: int, start: int, end: int) -> int:
    return resident_pages(descriptor, start, end - start).count(1)


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 30), st.integers(0, 1 << 27))
def test_surroundings_are_whole_pages_a_window_before_and_two_behind(offset: int, length: int, window: int) -> None:
    start, end = surroundings(ByteRange(0, offset, length), window)
    assert start % PAGE_BYTES == end % PAGE_BYTES == 0
    assert 0 <= start <= max(0, offset - window) < start + PAGE_BYTES
    assert 0 <= end - (offset + length + 2 * window) < PAGE_BYTES


def test_mapping_reads_nothing_and_populating_all_pages_of_the_piece(cold: int) -> None:
    chosen = ByteRange(0, 8 * MIB + 100, 256 * KIB)
    mapped = map_slice(cold, chosen)
    try:
        assert resident(cold, 0, FILE) == 0
        number = populate(mapped, 64 * KIB, 32 * KIB)
        if number == errno.EINVAL:
            pytest.skip("this kernel cannot populate a mapping (Linux 5.14 or newer can)")
        assert number == 0
        first = 8 * MIB + 64 * KIB
        assert resident(cold, first, first + 32 * KIB + PAGE_BYTES) == 32 * KIB // PAGE_BYTES + 1
    finally:
        unmap(mapped)


def test_what_is_dropped_is_no_more_than_the_surroundings(cold: int) -> None:
    os.pread(cold, PAGE_BYTES, 0)
    os.pread(cold, PAGE_BYTES, 16 * MIB)
    drop({0: cold}, (ByteRange(0, 16 * MIB, PAGE_BYTES),), 64 * KIB)
    assert resident(cold, 16 * MIB, 16 * MIB + PAGE_BYTES) == 0
    assert resident(cold, 0, PAGE_BYTES) == 1


def test_a_file_that_became_shorter_is_an_error_and_no_signal(cold: int, tmp_path: Path) -> None:
    mapped = map_slice(cold, ByteRange(0, 16 * MIB, MIB))
    try:
        os.truncate(tmp_path / "model", MIB)
        assert populate(mapped, 0, MIB) != 0
    finally:
        unmap(mapped)


def test_a_kernel_that_cannot_populate(cold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_faults, "_MADV_POPULATE_READ", 9999)
    mapped = map_slice(cold, ByteRange(0, 0, MIB))
    try:
        assert populate(mapped, 0, MIB) == errno.EINVAL
    finally:
        unmap(mapped)


def test_what_cannot_be_mapped_or_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        map_slice(-1, ByteRange(0, 0, MIB))
    with pytest.raises(FileNotFoundError):
        open_part(str(tmp_path / "none"))
