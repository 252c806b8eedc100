"""Residency of each expert."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from hypothesis import given
from hypothesis import strategies as st

from moetuned.gguf.experts import ExpertMap, ExpertTensor, expert_slices
from moetuned.host import expert_residency, page_cache
from moetuned.host.expert_residency import LOOK_CPU_SHARE, SHORTEST_PAUSE_SECONDS, ExpertScan, seconds_between, shape
from moetuned.host.page_cache import PAGE_BYTES, CachedPages
from moetuned.schema.heat import ExpertPages

P = PAGE_BYTES


def tensor(
    layer: int, offset: int, slice_bytes: int, count: int, *, part: int = 0, alone: int | None = None
) -> ExpertTensor:
    return ExpertTensor(f"{layer}.{part}.{offset}", layer, part, offset, slice_bytes, count, alone)


def expert_map(*tensors: ExpertTensor, layers: int = 1, part_bytes: tuple[int, ...] = (64 * P,)) -> ExpertMap:
    experts = max(each.count if each.alone is None else each.alone + 1 for each in tensors)
    return ExpertMap(layers, experts, (1,) * layers, tensors, (), part_bytes)


def finish(scan: ExpertScan) -> ExpertPages | None:
    while not scan.advance():
        pass
    return scan.result


class Cache:
    """A page cache in which exactly these pages of each file are."""

    def __init__(self, cached: dict[str, set[int]]) -> None:
        self.cached = cached
        self.asked: list[tuple[int, int]] = []

    def __call__(self, descriptor: int, offset: int, length: int) -> CachedPages:
        pages = self.cached[os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))]
        self.asked.append((offset // P, -(-length // P)))
        return CachedPages(sum(offset // P <= page < -(-(offset + length) // P) for page in pages), 0, 0)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[str], Cache]]:
    def make(*cached: set[int], sizes: tuple[int, ...] = (64 * P,)) -> tuple[list[str], Cache]:
        paths = []
        for number, size in enumerate(sizes):
            path = tmp_path / f"part{number}"
            with path.open("wb") as file:
                file.truncate(size)
            paths.append(str(path))
        cache = Cache({f"part{number}": pages for number, pages in enumerate(cached)})
        monkeypatch.setattr(page_cache, "cachestat", cache)
        return paths, cache

    return make


def test_a_tensor_with_nothing_or_everything_cached_is_one_call(model: Callable[..., tuple[list[str], Cache]]) -> None:
    paths, cache = model(set(range(16, 24)))
    experts = expert_map(tensor(0, 0, 2 * P, 4), tensor(1, 16 * P, 2 * P, 4), layers=2)
    found = finish(ExpertScan(paths, experts, cpu_clock=lambda: 0.0))
    assert found == ExpertPages(2, 4, (0, 0, 0, 0, 2, 2, 2, 2), (2,) * 8)
    assert cache.asked == [(0, 8), (16, 8)]


def test_a_mixed_tensor_is_asked_for_each_expert(model: Callable[..., tuple[list[str], Cache]]) -> None:
    paths, cache = model({2, 3, 4})
    scan = ExpertScan(paths, expert_map(tensor(0, 0, 2 * P, 4)))
    assert finish(scan) == ExpertPages(1, 4, (0, 2, 1, 0), (2, 2, 2, 2))
    assert cache.asked == [(0, 8), (0, 2), (2, 2), (4, 2), (6, 2)]
    assert scan.calls == 5


def test_only_of_the_first_mixed_tensor_pages_are_counted_twice(model: Callable[..., tuple[list[str], Cache]]) -> None:
    paths, cache = model({0, 9, 18, 27, 36})
    layers = 5
    tensors = [tensor(layer, layer * 8 * P, 2 * P, 4) for layer in range(layers)]
    found = finish(ExpertScan(paths, expert_map(*tensors, layers=layers)))
    assert found is not None
    assert sum(found.cached) == 5
    assert sum(pages for _, pages in cache.asked) == 8 + layers * 8
    assert len(cache.asked) == 1 + layers * 4


def test_after_a_tensor_that_is_not_mixed_neighbours_are_asked_for_together_again(
    model: Callable[..., tuple[list[str], Cache]],
) -> None:
    paths, cache = model({0})
    tensors = [tensor(layer, layer * 8 * P, 2 * P, 4) for layer in range(4)]
    assert finish(ExpertScan(paths, expert_map(*tensors, layers=4))) is not None
    singles = [(at, 2) for at in range(0, 16, 2)]
    assert cache.asked == [(0, 8), *singles, (16, 8), (24, 8)]


def test_a_page_of_two_experts_counts_for_each(model: Callable[..., tuple[list[str], Cache]]) -> None:
    paths, _ = model({1})
    half = P + P // 2
    found = finish(ExpertScan(paths, expert_map(tensor(0, 0, half, 2))))
    assert found == ExpertPages(1, 2, (1, 1), (2, 2))
    paths, cache = model({0, 1, 2})
    assert finish(ExpertScan(paths, expert_map(tensor(0, 0, half, 2)))) == ExpertPages(1, 2, (2, 2), (2, 2))
    assert cache.asked == [(0, 3)]


def test_tensors_of_one_expert_each(model: Callable[..., tuple[list[str], Cache]]) -> None:
    """Mixtral files from before April 2024."""
    paths, _ = model({4, 5})
    old = [tensor(0, expert * 4 * P, 2 * P, 1, alone=expert) for expert in range(3)]
    assert finish(ExpertScan(paths, expert_map(*old))) == ExpertPages(1, 3, (0, 2, 0), (2, 2, 2))


def test_neighbours_share_a_slice_where_there_are_fewer(model: Callable[..., tuple[list[str], Cache]]) -> None:
    paths, _ = model({0, 8})
    found = finish(ExpertScan(paths, expert_map(tensor(0, 0, 2 * P, 4), tensor(0, 8 * P, P, 2))))
    assert found == ExpertPages(1, 4, (2, 1, 0, 0), (3, 3, 3, 3))


def test_parts_and_layers_without_experts(model: Callable[..., tuple[list[str], Cache]]) -> None:
    paths, _ = model({0}, {5}, sizes=(8 * P, 8 * P))
    experts = expert_map(tensor(1, 0, P, 2), tensor(1, 4 * P, P, 2, part=1), layers=2, part_bytes=(8 * P, 8 * P))
    assert finish(ExpertScan(paths, experts)) == ExpertPages(2, 2, (0, 0, 1, 1), (0, 0, 2, 2))


def test_layers_behind_the_trunk_have_cells(model: Callable[..., tuple[list[str], Cache]]) -> None:
    """Blocks that predict further tokens are used when speculation is on."""
    paths, _ = model({0})
    assert shape(expert_map(tensor(1, 0, P, 2), layers=1)) == (2, 2)
    assert finish(ExpertScan(paths, expert_map(tensor(1, 0, P, 2), layers=1))) == ExpertPages(
        2, 2, (0, 0, 1, 0), (0, 0, 1, 1)
    )


def test_a_file_of_another_size_is_unknown(model: Callable[..., tuple[list[str], Cache]]) -> None:
    paths, cache = model(set(), sizes=(63 * P,))
    scan = ExpertScan(paths, expert_map(tensor(0, 0, P, 4)))
    assert finish(scan) is None
    assert "not the file it was" in (scan.unknown or "")
    assert cache.asked == []


@pytest.mark.parametrize(("number", "words"), [(errno.EPERM, "owns the model file"), (errno.EIO, "cannot look")])
def test_a_refusal_is_unknown_with_a_reason(
    model: Callable[..., tuple[list[str], Cache]], monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    paths, _ = model(set())

    def refuse(*_: int) -> CachedPages:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(page_cache, "cachestat", refuse)
    scan = ExpertScan(paths, expert_map(tensor(0, 0, P, 4)))
    assert finish(scan) is None
    assert words in (scan.unknown or "")
    assert scan.advance()


def test_a_file_that_is_gone_a_dense_model_and_impossible_sizes_are_unknown(tmp_path: Path) -> None:
    experts = expert_map(tensor(0, 0, P, 4))
    gone = ExpertScan([str(tmp_path / "none.gguf")], experts)
    assert finish(gone) is None
    assert "none.gguf" in (gone.unknown or "")
    dense = ExpertScan([], ExpertMap(4, 0, (), (), (), ()))
    assert dense.advance()
    assert "no routed experts" in (dense.unknown or "")
    huge = ExpertScan(["x"], expert_map(tensor(511, 0, P, 1, alone=60_000), layers=512))
    assert huge.advance()
    assert "more than can be looked at" in (huge.unknown or "")
    short = ExpertScan([], experts)
    assert short.advance()
    assert "1 parts" in (short.unknown or "")


def test_a_scan_pauses_on_its_budget_and_counts_what_it_took(
    model: Callable[..., tuple[list[str], Cache]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, cache = model({2})
    now = [0.0]

    def slow(descriptor: int, offset: int, length: int) -> CachedPages:
        now[0] += 0.003
        return cache(descriptor, offset, length)

    monkeypatch.setattr(page_cache, "cachestat", slow)
    monkeypatch.setattr(expert_residency, "MOST_UNTIMED_PAGES", 0)
    before = len(os.listdir("/proc/self/fd"))
    scan = ExpertScan(paths, expert_map(tensor(0, 0, 2 * P, 4)), cpu_clock=lambda: now[0])
    turns = 1
    while not scan.advance(0.005):
        turns += 1
        assert len(os.listdir("/proc/self/fd")) == before + 1
    assert turns == 3
    assert scan.cpu_seconds == pytest.approx(0.015)
    assert scan.result == ExpertPages(1, 4, (0, 1, 0, 0), (2, 2, 2, 2))
    abandoned = ExpertScan(paths, expert_map(tensor(0, 0, 2 * P, 4)), cpu_clock=lambda: now[0])
    assert not abandoned.advance(0.0)
    abandoned.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_how_often_a_look_may_be_taken() -> None:
    assert seconds_between(0.0) == SHORTEST_PAUSE_SECONDS
    assert seconds_between(0.5) * LOOK_CPU_SHARE == pytest.approx(0.5)
    assert seconds_between(1.0, 0.01) == pytest.approx(100.0)


@given(
    shapes=st.lists(st.tuples(st.integers(1, 3 * P), st.integers(1, 6), st.integers(0, P)), min_size=1, max_size=4),
    cached=st.sets(st.integers(0, 80)),
    cost=st.sampled_from([0.0, 1e-5, 0.01]),
)
def test_every_expert_has_the_pages_that_hold_a_byte_of_it(
    shapes: list[tuple[int, int, int]], cached: set[int], cost: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tensors, at = [], 0
    for layer, (slice_bytes, count, gap) in enumerate(shapes):
        tensors.append(tensor(layer % 2, at + gap, slice_bytes, count))
        at += gap + slice_bytes * count
    experts = expert_map(*tensors, layers=2, part_bytes=(at,))
    path = tmp_path_factory.mktemp("model") / "part0"
    with path.open("wb") as file:
        file.truncate(at)
    cached = {page for page in cached if page * P < at}
    now = [0.0]

    def clock() -> float:
        now[0] += cost
        return now[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_cache, "cachestat", Cache({"part0": cached}))
        found = finish(ExpertScan([str(path)], experts, cpu_clock=clock))
    assert found is not None
    for cell in range(2 * experts.experts):
        slices = expert_slices(experts, *divmod(cell, experts.experts))
        pages = [page for one in slices for page in range(one.offset // P, -(-(one.offset + one.length) // P))]
        assert found.whole[cell] == len(pages)
        assert found.cached[cell] == sum(page in cached for page in pages)


@pytest.mark.kernel
@pytest.mark.parametrize("count", ["cachestat", "mincore"])
def test_what_the_kernel_says(tmp_path: Path, count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: looks at what the page cache holds")
    path = make_cold_file(tmp_path / "model.gguf", 1 << 20)
    with open(path, "rb") as file:
        if count == "mincore":

            def missing(*_: int) -> CachedPages:
                raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

            monkeypatch.setattr(page_cache, "cachestat", missing)
        else:
            try:
                page_cache.cachestat(file.fileno(), 0, 1)
            except OSError as error:
                pytest.skip(f"this kernel has no cachestat(2): {error}")
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), 1, 9 * P)
        os.pread(file.fileno(), 2 * P, 12 * P)
        experts = expert_map(tensor(0, 8 * P, 2 * P, 4), part_bytes=(1 << 20,))
        assert finish(ExpertScan([path], experts)) == ExpertPages(1, 4, (1, 0, 2, 0), (2, 2, 2, 2))
