"""Measuring a read-ahead: which slices, read how, counted right, and nothing left in memory; on real files."""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from hypothesis import given
from hypothesis import strategies as st

from moetuned.gguf.experts import ExpertMap, ExpertTensor
from moetuned.host import read_ahead_measure, slice_faults
from moetuned.host.block_devices import under_file
from moetuned.host.fs import RealFS
from moetuned.host.page_cache import PAGE_BYTES, resident_pages
from moetuned.host.read_ahead_measure import (
    MOST_PARTS,
    ReadAheadMeasureError,
    cached_bytes,
    choose_slices,
    mapped_by,
    read_round,
)
from moetuned.host.slice_faults import open_part
from moetuned.schema.model import ByteRange

KIB, MIB = 1 << 10, 1 << 20
SLICE, FILE, WINDOW = 256 * KIB, 64 * MIB, 256 * KIB
SLICES = tuple(ByteRange(0, index * SLICE + 100, SLICE) for index in range(FILE // SLICE - 1))
EVENLY = SLICES[::8]


def experts(*tensors: tuple[int, int, int]) -> ExpertMap:
    """`tensors`: part, slice bytes, count; one after the other."""
    made, offset = [], 0
    for part, slice_bytes, count in tensors:
        made.append(ExpertTensor("blk.0.ffn_up_exps.weight", 0, part, offset, slice_bytes, count))
        offset += slice_bytes * count
    return ExpertMap(1, 8, (2,), tuple(made), (), (offset,))


def test_every_slice_once_in_an_order_that_the_seed_decides() -> None:
    found = choose_slices(experts((0, 100, 8), (0, 50, 4)), seed=1)
    whole = {(0, index * 100, 100) for index in range(8)} | {(0, 800 + index * 50, 50) for index in range(4)}
    assert Counter((each.part, each.offset, each.length) for each in found) == Counter(whole)
    assert found == choose_slices(experts((0, 100, 8), (0, 50, 4)), seed=1)
    assert found != choose_slices(experts((0, 100, 8), (0, 50, 4)), seed=2)


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 99), st.integers(1, 50)), max_size=40, unique_by=lambda t: t[0]
    )
)
def test_slices_are_slices_of_the_tensors_in_a_few_parts(tensors: list[tuple[int, int, int]]) -> None:
    made = experts(*tensors)
    allowed = {
        (tensor.part, tensor.offset + index * tensor.slice_bytes, tensor.slice_bytes)
        for tensor in made.tensors
        for index in range(tensor.count)
    }
    found = [(each.part, each.offset, each.length) for each in choose_slices(made, seed=3)]
    assert len(found) == len(set(found))
    assert set(found) <= allowed
    assert len({part for part, _, _ in found}) == min(MOST_PARTS, len(tensors))


def test_a_huge_model_gives_a_sample() -> None:
    found = choose_slices(experts((0, 10, 60_000), (1, 10, 60_000)), seed=1)
    assert len(found) == len(set(found)) == 20_000
    assert 9_000 < sum(each.part == 0 for each in found) < 11_000


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=100), st.integers(0, 64 * KIB))
def test_slices_of_a_batch_do_not_reach_each_other(places: list[int], window: int) -> None:
    slices = [ByteRange(place % 2, place * 8 * KIB, 8 * KIB) for place in places]
    batches = list(read_ahead_measure._batches(iter(slices), window))
    assert [each for batch in batches for each in batch] == slices
    for batch in batches:
        assert 1 <= len(batch) <= 16
        for index, one in enumerate(batch):
            for other in batch[index + 1 :]:
                apart = (
                    one.offset + one.length + window <= other.offset
                    or other.offset + other.length + window <= one.offset
                )
                assert one.part != other.part or apart


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[tuple[str, dict[int, int]]]:
    path = make_cold_file(tmp_path / "model", FILE)
    descriptor = open_part(path)
    try:
        yield path, {0: descriptor}
    finally:
        os.close(descriptor)


def rounds(
    opened: dict[int, int], slices: tuple[ByteRange, ...] = EVENLY, window: int = WINDOW, **more: float
) -> read_ahead_measure.Round:
    arguments = {"threads": 2, "seconds": 20.0, "budget_bytes": 1 << 40} | more
    try:
        return read_round(opened, iter(slices), window, **arguments)  # type: ignore[arg-type]
    except ReadAheadMeasureError as error:
        if "Linux 5.14" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_whole_slices_are_read_from_the_disk_and_dropped_again(cold: tuple[str, dict[int, int]], threads: int) -> None:
    few, window = EVENLY[::8], 2 * (under_file(cold[0]).read_ahead_kb or 128) << 10
    found = rounds(cold[1], few, window=window, threads=threads)
    assert (found.slices, found.useful_bytes) == (len(few), len(few) * SLICE)
    assert found.seconds > 0
    assert found.read_bytes is None or found.read_bytes >= found.useful_bytes
    assert resident_pages(cold[1][0], 0, FILE).count(1) * PAGE_BYTES < FILE // 2, "what is on its way cannot be dropped"


def test_what_was_in_memory_is_read_from_the_disk_all_the_same(cold: tuple[str, dict[int, int]]) -> None:
    os.posix_fadvise(cold[1][0], 0, 0, os.POSIX_FADV_WILLNEED)
    with open(cold[0], "rb") as file:
        file.read()
    assert cached_bytes(cold[1], EVENLY) in (0, pytest.approx(len(EVENLY) * (SLICE + PAGE_BYTES), rel=0.05))
    found = rounds(cold[1])
    assert found.read_bytes is None or found.read_bytes >= found.useful_bytes


def test_a_byte_budget_ends_it(cold: tuple[str, dict[int, int]]) -> None:
    found = rounds(cold[1], SLICES, budget_bytes=1)
    assert 1 <= found.slices <= 16


def test_no_time_left_is_one_batch(cold: tuple[str, dict[int, int]]) -> None:
    assert 1 <= rounds(cold[1], SLICES, seconds=0.0).slices <= 16


def test_nothing_to_read_is_a_round_of_nothing(cold: tuple[str, dict[int, int]]) -> None:
    found = rounds(cold[1], ())
    assert (found.slices, found.useful_bytes) == (0, 0)


def test_a_file_that_became_shorter_is_an_error_and_no_signal(cold: tuple[str, dict[int, int]]) -> None:
    os.truncate(cold[0], MIB)
    with pytest.raises(ReadAheadMeasureError, match="reading the model failed"):
        rounds(cold[1], SLICES[100:])


def test_an_interruption_leaves_no_mapping_and_no_thread(
    cold: tuple[str, dict[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(mapped: slice_faults.MappedSlice, at: int, length: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(read_ahead_measure, "_populate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rounds(cold[1], threads=1)
    assert cold[0] not in Path("/proc/self/maps").read_text()


def test_a_kernel_that_cannot_populate_says_so(
    cold: tuple[str, dict[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slice_faults, "_MADV_POPULATE_READ", 9999)
    with pytest.raises(ReadAheadMeasureError, match=r"Linux 5\.14"):
        read_round(cold[1], iter(EVENLY), WINDOW, threads=1, seconds=1.0, budget_bytes=1)


def test_a_file_whose_name_looks_like_another_line_is_one_file(tmp_path: Path) -> None:
    ours = tmp_path / "a.gguf"
    ours.write_bytes(b"x" * PAGE_BYTES)
    inode = ours.stat().st_ino

    class Files(RealFS):
        def read_text(self, path: str, limit_bytes: int = 0) -> str:
            return f"7f10-7f20 r--p 0 08:01 1 /tmp/a\u20287f00-7f01 r--p 0 08:01 {inode} {ours}\n"

    assert mapped_by([str(ours)], Files()) == ()


def test_who_has_it_mapped(tmp_path: Path) -> None:
    ours, other = tmp_path / "a.gguf", tmp_path / "b.gguf"
    for path in (ours, other):
        path.write_bytes(b"x" * PAGE_BYTES)
    link = tmp_path / "link"
    link.symlink_to(ours)
    assert mapped_by([str(ours)]) == ()
    with ours.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert mapped_by([str(link)]) == (os.getpid(),)
        assert mapped_by([str(other), str(tmp_path / "none")]) == ()
