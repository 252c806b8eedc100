"""Residency of files."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import page_cache
from moetuned.host.page_cache import PAGE_BYTES, CachedPages, ResidencyScan, expert_page_runs, page_runs, resident_pages
from moetuned.schema.model import ByteRange
from moetuned.schema.sample import RawResidency

MIB = 1 << 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(make_cold_file(tmp_path / "model.gguf", 8 * MIB + 3))


def finish(scan: ResidencyScan) -> RawResidency | None:
    while not scan.advance():
        pass
    return scan.result


def touch(path: Path, offset: int, length: int) -> None:
    """Have exactly these bytes resident."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    for start in range(offset, offset + length, PAGE_BYTES):
        os.pread(descriptor, min(PAGE_BYTES, offset + length - start), start)
    os.close(descriptor)


def has_cachestat(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            page_cache.cachestat(file.fileno(), 0, 1)
        except OSError as error:
            return error.errno != errno.ENOSYS
    return True


@pytest.mark.kernel
@pytest.mark.parametrize("count", ["cachestat", "mincore"])
def test_experts_and_the_rest_are_counted_apart(model: Path, count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if count == "mincore":
        monkeypatch.setattr(page_cache, "cachestat", refuse(errno.ENOSYS))
    elif not has_cachestat(model):
        pytest.skip("this kernel has no cachestat(2)")
    touch(model, MIB, 2 * MIB)
    experts = [ByteRange(0, 2 * MIB, 4 * MIB)]
    result = finish(ResidencyScan([str(model)], experts))
    half = MIB // PAGE_BYTES
    assert result is not None
    assert (result.cached, result.expert_cached, result.other_cached) == (2 * half, half, half)
    assert (result.evicted is None) == (count == "mincore")
    whole = finish(ResidencyScan([str(model)]))
    assert whole is not None
    assert (whole.cached, whole.expert_cached, whole.other_cached) == (2 * half, None, None)


def refuse(number: int) -> Callable[..., CachedPages]:
    def call(*_arguments: int) -> CachedPages:
        raise OSError(number, os.strerror(number))

    return call


def test_a_refusal_is_unknown_with_a_reason(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "cachestat", refuse(errno.EPERM))
    scan = ResidencyScan([str(model)])
    assert finish(scan) is None
    assert "owns the model file" in (scan.unknown or "")
    assert scan.advance()


@pytest.mark.kernel
@pytest.mark.parametrize("call", ["cachestat", "mincore"])
def test_who_does_not_own_the_file_is_told_nothing_rather_than_a_lie(model: Path, call: str) -> None:
    if call == "cachestat" and not has_cachestat(model):
        pytest.skip("this kernel has no cachestat(2)")
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    script = (
        "import os, sys; from moetuned.host import page_cache\n"
        f"d = os.open({str(model)!r}, os.O_RDONLY); os.setresuid(65534, 65534, 65534)\n"
        f"try: page_cache.{call}(d, 0, 4096)\n"
        "except PermissionError: print('refused')"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "refused\n"


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: looks at what the page cache holds")
def test_which_pages_are_resident(tmp_path: Path) -> None:
    path = make_cold_file(tmp_path / "cold", 64 * PAGE_BYTES + 1)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        assert resident_pages(descriptor, 0, 64 * PAGE_BYTES + 1) == bytes(65)
        os.pread(descriptor, 1, 5 * PAGE_BYTES)
        os.pread(descriptor, 1, 64 * PAGE_BYTES)
        assert [page for page, there in enumerate(resident_pages(descriptor, 0, 64 * PAGE_BYTES + 1)) if there] == [
            5,
            64,
        ]
        assert resident_pages(descriptor, 4 * PAGE_BYTES, 2 * PAGE_BYTES) == b"\0\1"
        assert resident_pages(descriptor, 0, 0) == b""
    finally:
        os.close(descriptor)


def test_a_model_that_is_gone_is_unknown_and_names_it(tmp_path: Path) -> None:
    scan = ResidencyScan([str(tmp_path / "none.gguf")])
    assert finish(scan) is None
    assert "none.gguf" in (scan.unknown or "")


def test_the_scan_pauses_on_its_budget_and_closes_its_file(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def slow(_descriptor: int, _offset: int, length: int) -> CachedPages:
        nonlocal now
        now += 0.003
        return CachedPages(length // PAGE_BYTES, 0, 0)

    monkeypatch.setattr(page_cache, "cachestat", slow)
    monkeypatch.setattr(page_cache, "FIRST_SLICE_BYTES", MIB)
    monkeypatch.setattr(page_cache, "SMALLEST_SLICE_BYTES", MIB)
    before = len(os.listdir("/proc/self/fd"))
    scan = ResidencyScan([str(model)], cpu_clock=lambda: now)
    turns = 1
    while not scan.advance(0.005):
        turns += 1
        assert len(os.listdir("/proc/self/fd")) == before + 1
    assert turns == 5
    assert scan.result == RawResidency(cached=8 * MIB // PAGE_BYTES + 1, evicted=0, recently_evicted=0)
    assert len(os.listdir("/proc/self/fd")) == before
    abandoned = ResidencyScan([str(model)], cpu_clock=lambda: now)
    abandoned.advance(0.0)
    abandoned.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_slices_follow_what_a_call_costs(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost, now, asked = 0.01, 0.0, []

    def count(_descriptor: int, _offset: int, length: int) -> CachedPages:
        nonlocal now
        now += cost
        asked.append(length // MIB)
        return CachedPages(0, 0, 0)

    monkeypatch.setattr(page_cache, "cachestat", count)
    monkeypatch.setattr(page_cache, "FIRST_SLICE_BYTES", 4 * MIB)
    monkeypatch.setattr(page_cache, "SMALLEST_SLICE_BYTES", MIB)
    finish(ResidencyScan([str(model)], cpu_clock=lambda: now))
    assert asked == [4, 2, 1, 1, 0]
    cost, asked[:] = 0.0, []
    monkeypatch.setattr(page_cache, "FIRST_SLICE_BYTES", MIB)
    finish(ResidencyScan([str(model)], cpu_clock=lambda: now))
    assert asked == [1, 2, 4, 1]


@pytest.mark.kernel
def test_overlayfs_is_asked_by_mincore(model: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare to mount an overlay that nobody else sees")
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    lower = tmp_path / "lower" / "model.gguf"
    model.rename(lower)
    touch(lower, MIB, 2 * MIB)
    mount = f"mount -t overlay overlay -o lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work {tmp_path}/merged"
    script = (
        "import sys; from moetuned.host.page_cache import ResidencyScan\n"
        "s = ResidencyScan([sys.argv[1]])\n"
        "while not s.advance(): pass\n"
        "print(s.result.cached, s.result.evicted)"
    )
    inside = ["unshare", "-m", "sh", "-c", f'{mount} || exit 77; exec "$@"', "sh", sys.executable, "-c", script]
    answer = subprocess.run([*inside, f"{tmp_path}/merged/model.gguf"], capture_output=True, text=True, check=False)
    if answer.returncode == 77:
        pytest.skip(f"no overlayfs here: {answer.stderr}")
    assert answer.stdout == f"{2 * MIB // PAGE_BYTES} None\n", answer.stderr


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5 * PAGE_BYTES), st.booleans()), max_size=20),
)
def test_every_page_belongs_to_exactly_one_run(pieces: list[tuple[int, int, bool]]) -> None:
    sizes, experts = [0, 0], []
    owner: list[dict[int, bool]] = [{}, {}]
    for part, length, expert in pieces:
        start = sizes[part]
        if expert:
            experts.append(ByteRange(part, start, length))
        for page in range(-(-start // PAGE_BYTES), -(-(start + length) // PAGE_BYTES)):
            owner[part][page] = expert
        sizes[part] += length
    for part, runs in enumerate(expert_page_runs(experts, 2)):
        pages = -(-sizes[part] // PAGE_BYTES)
        covered = [(page, expert) for first, last, expert in page_runs(pages, runs) for page in range(first, last)]
        assert covered == sorted(owner[part].items())
