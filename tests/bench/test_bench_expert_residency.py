"""What a look at every expert of a 400 GB model costs: nothing cached, some experts resident in 4 KiB pages, and evicted again.

The file is sparse, so that reading fills the page cache without a disk; figures for 20 GB follow from what each GiB more adds.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.own_cgroup import own_cgroup
from measuring import Figure, middle

from moetuned.gguf.experts import ExpertMap, ExpertTensor, expert_slices
from moetuned.host.expert_residency import LOOK_CPU_SHARE, ExpertScan, seconds_between
from moetuned.host.page_cache import PAGE_BYTES, cachestat
from moetuned.schema.heat import ExpertPages
from moetuned.schema.model import ByteRange

pytestmark = [pytest.mark.bench, pytest.mark.kernel, pytest.mark.timeout(900)]
GIB = 1 << 30
LAYERS, EXPERTS = 60, 256
MODEL_BYTES = 400 * 10**9
RESIDENT_BYTES = 4 * GIB
STATED_BYTES = 20 * 10**9
CACHE_BYTES = 128 << 20
"""Of the cgroup in which reading evicts what was read before."""
PIECE_SECONDS = 0.005
LONGEST_INTERVAL_SECONDS = 900
"""With 20 GB resident a look can be taken at least this often within the bar."""
READER = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
with open(sys.argv[2] + "/cgroup.procs", "w") as group:
    group.write(str(os.getpid()))
buffer = bytearray(1 << 20)
for line in sys.stdin:
    start, length = map(int, line.split())
    for at in range(start, start + length, len(buffer)):
        os.preadv(file, [memoryview(buffer)[: min(len(buffer), start + length - at)]], at)
"""


def sparse_model(path: Path) -> ExpertMap:
    """Three tensors a layer; slices begin anywhere in a page."""
    slice_bytes = MODEL_BYTES // (LAYERS * 3 * EXPERTS) // 32 * 32
    tensors, at = [], 12_345 * 32
    for layer in range(LAYERS):
        for kind in ("gate", "up", "down"):
            tensors.append(ExpertTensor(f"blk.{layer}.ffn_{kind}_exps.weight", layer, 0, at, slice_bytes, EXPERTS))
            at += slice_bytes * EXPERTS + 8192
    with path.open("wb") as file:
        file.truncate(at)
    return ExpertMap(LAYERS, EXPERTS, (8,) * LAYERS, tuple(tensors), (), (at,))


def look(path: Path, experts: ExpertMap) -> tuple[ExpertScan, ExpertPages, float]:
    """A whole look, and the longest of its pieces in CPU seconds."""
    scan, longest, done = ExpertScan([str(path)], experts), 0.0, False
    while not done:
        begun = time.thread_time()
        done = scan.advance(PIECE_SECONDS)
        longest = max(longest, time.thread_time() - begun)
    assert scan.result is not None, scan.unknown
    return scan, scan.result, longest


def call_for_each(path: Path, experts: ExpertMap) -> float:
    """CPU seconds of asking for every slice, without more."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        begun = time.thread_time()
        for tensor in experts.tensors:
            for index in range(tensor.count):
                cachestat(descriptor, tensor.offset + index * tensor.slice_bytes, tensor.slice_bytes)
        return time.thread_time() - begun
    finally:
        os.close(descriptor)


def resident_cost(path: Path, ranges: list[ByteRange]) -> float:
    """CPU seconds of asking for what is resident, a byte."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        begun = time.thread_time()
        for one in ranges:
            cachestat(descriptor, one.offset, one.length)
        return (time.thread_time() - begun) / sum(one.length for one in ranges)
    finally:
        os.close(descriptor)


def some_experts(experts: ExpertMap, size: int) -> list[ByteRange]:
    """Slices of random experts, so many that they take about `size` bytes."""
    order = [(layer, expert) for layer in range(LAYERS) for expert in range(EXPERTS)]
    random.Random(1).shuffle(order)
    count = size // (3 * experts.tensors[0].slice_bytes)
    return [one for cell in order[:count] for one in expert_slices(experts, *cell)]


def read(path: Path, ranges: list[ByteRange], group: str) -> None:
    lines = "".join(f"{one.offset} {one.length}\n" for one in ranges)
    subprocess.run([sys.executable, "-c", READER, str(path), group], input=lines, text=True, check=True)


def test_a_look_at_400_gb(on_disk: Path, figure: Figure) -> None:
    path = on_disk / "sparse.gguf"
    experts = sparse_model(path)
    with path.open("rb") as file:
        try:
            cachestat(file.fileno(), 0, PAGE_BYTES)
        except OSError as error:
            pytest.skip(f"needs cachestat(2): {error}")
    ranges = some_experts(experts, RESIDENT_BYTES)
    try:
        empty = middle(look(path, experts)[0].cpu_seconds for _ in range(3))
        with own_cgroup() as group:
            read(path, ranges, group)
            looks = [look(path, experts) for _ in range(3)]
            full = middle(scan.cpu_seconds for scan, _, _ in looks)
            longest = middle(piece for _, _, piece in looks)
            resident = sum(looks[0][1].cached) * PAGE_BYTES
            each = middle(resident_cost(path, ranges) for _ in range(3))
            naive = middle(call_for_each(path, experts) for _ in range(3))
            os.truncate(path, 0)
        sparse_model(path)
        with own_cgroup(CACHE_BYTES) as group:
            read(path, ranges, group)
            gone, pages, _ = look(path, experts)
            left = sum(pages.cached) * PAGE_BYTES
    finally:
        path.unlink()
    assert resident == pytest.approx(RESIDENT_BYTES, rel=0.05)
    assert left < RESIDENT_BYTES / 10
    stated = full + each * (STATED_BYTES - resident)
    figure("look at 400 GB, nothing cached, CPU", empty * 1e3, "ms")
    figure("look at 400 GB, each GiB resident in 4 KiB pages, CPU", each * GIB * 1e3, "ms")
    figure("look at 400 GB, 4 GiB resident in 4 KiB pages, CPU", full * 1e3, "ms")
    figure("look at 400 GB, 4 GiB of them evicted, CPU", gone.cpu_seconds * 1e3, "ms")
    figure("look at 400 GB, calls", looks[0][0].calls, "")
    figure("a call for each of its slices alone, CPU of a look", full / naive, "times that")
    figure("look at 400 GB, longest piece, CPU", longest * 1e3, "ms")
    figure("look at 400 GB with 20 GB resident, CPU", stated * 1e3, "ms")
    figure("it may be taken every", seconds_between(stated), "s")
    figure("share of a core if taken as often", stated / seconds_between(stated) * 100, "%")
    assert stated / seconds_between(stated) <= LOOK_CPU_SHARE * 1.001
    assert seconds_between(stated) <= LONGEST_INTERVAL_SECONDS
    assert full / naive <= 2.5
    assert longest <= 3 * PIECE_SECONDS
