"""Warming a cold file against `cat` of the same file, in turn."""

from __future__ import annotations

import select
import subprocess
import time
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from measuring import Figure, drop, middle

from moetuned.host.block_devices import under_file
from moetuned.host.warming import warm_in_cgroup
from moetuned.schema.model import ByteRange

pytestmark = pytest.mark.bench
SIZE = 768 << 20


def warmed(path: Path) -> tuple[float, float]:
    """Seconds until the whole file has been warmed: with starting the process, and of the reading alone."""
    begun = time.perf_counter()
    warming = warm_in_cgroup((str(path),), (ByteRange(0, 0, SIZE),))
    while (progress := warming.advance()).state == "running":
        select.select([warming.fileno()], [], [], 30)
    assert progress.state == "done", progress.error
    assert progress.seconds is not None
    return time.perf_counter() - begun, progress.seconds


def concatenated(path: Path) -> float:
    begun = time.perf_counter()
    subprocess.run(["cat", str(path)], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def test_warming_a_cold_file(on_disk: Path, figure: Figure) -> None:
    path = Path(make_cold_file(on_disk / "file", SIZE))
    ours, theirs = [], []
    for _ in range(5):
        drop(path)
        ours.append(warmed(path))
        drop(path)
        theirs.append(concatenated(path))
    whole, reading = (middle(run[column] for run in ours) for column in range(2))
    figure("read-ahead of the disk under both", under_file(str(path)).read_ahead_kb or 0, "KiB")
    figure("warming a cold file", SIZE / reading / 1e6, "MB/s")
    figure("warming a cold file, the start of its process included", SIZE / whole / 1e6, "MB/s")
    figure("cat of a cold file", SIZE / middle(theirs) / 1e6, "MB/s")
    figure("warming is faster than cat by", middle(theirs) / reading, "times")
