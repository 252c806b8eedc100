"""moetunectl verify against sha256sum on a file that is not in the page cache: rate, and what is resident afterwards."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pytest
from fakes.gguf_bytes import TensorSpec, gguf_bytes, moe_metadata
from measuring import Figure, middle

from moetuned.host.page_cache import PAGE_BYTES, resident_pages

pytestmark = pytest.mark.bench
MIB = 1 << 20
SIZE = 1024 * MIB
KEPT = 64 * MIB


def make(path: Path) -> None:
    """A model of one tensor, random content, and its sum beside it."""
    raw = gguf_bytes(moe_metadata(), [TensorSpec("token_embd.weight", (SIZE // 4096, 1024))], with_data=False)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in chain([raw + bytes(-len(raw) % 32)], (os.urandom(MIB) for _ in range(SIZE // MIB))):
            file.write(piece)
            digest.update(piece)
    Path(f"{path}.sha256").write_text(f"{digest.hexdigest()}  {path.name}\n")


OURS = """
import sys
from moetuned.cli.main import run
try:
    run(["verify", sys.argv[1]])
finally:
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
"""


def run(path: Path, command: list[str]) -> tuple[float, float, str]:
    """Bytes a second, MiB resident afterwards beyond what was before (`KEPT`), and what it said on standard error."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for at in range(0, SIZE, SIZE * MIB // KEPT):
            os.pread(descriptor, MIB, at)
        before = resident_pages(descriptor, 0, path.stat().st_size)
        begun = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        seconds = time.perf_counter() - begun
        after = resident_pages(descriptor, 0, path.stat().st_size)
    finally:
        os.close(descriptor)
    return SIZE / seconds, (after.count(1) - before.count(1)) * PAGE_BYTES / MIB, done.stderr


def test_verify(on_disk: Path, figure: Figure) -> None:
    path = on_disk / "model.gguf"
    make(path)
    ours = [run(path, [sys.executable, "-c", OURS, str(path)]) for _ in range(3)]
    theirs = [run(path, ["sha256sum", str(path)]) for _ in range(3)]
    for name, runs in (("moetunectl verify", ours), ("sha256sum", theirs)):
        figure(f"{name}, rate", middle(one[0] for one in runs) / 1e6, "MB/s")
        figure(f"{name}, page cache gained from a file of {SIZE // MIB} MiB", middle(one[1] for one in runs), "MiB")
    figure("moetunectl verify, peak of the process", middle(int(one[2]) for one in ours) / 1024, "MiB")
    assert all(abs(one[1]) < 1 for one in ours)
