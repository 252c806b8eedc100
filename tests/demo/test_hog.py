"""The hog takes what it is told, at the pace it is told, and keeps it."""

from __future__ import annotations

import mmap
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moetuned.demo import hog

MIB = 1 << 20


def test_it_takes_all_of_it_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    memory: list[mmap.mmap] = []
    touched: list[int] = []
    real_mmap = mmap.mmap

    def keep(*how: int) -> mmap.mmap:
        memory.append(real_mmap(*how))
        return memory[0]

    monkeypatch.setattr(mmap, "mmap", keep)
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(signal, "pause", lambda: touched.append(bytes(memory[0]).count(b"h")))
    goal = 2 * hog.STEP_BYTES + mmap.PAGESIZE + 1
    assert hog.main([str(goal), str(4 * hog.STEP_BYTES)]) == 0
    assert touched == [goal], "every byte, before it waits"
    assert slept == [0.25] * 3


def test_nothing_to_take_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "pause", lambda: None)
    assert hog.main(["0", "1"]) == 0


def test_a_real_one_keeps_it_until_it_is_ended() -> None:
    with subprocess.Popen([sys.executable, "-m", "moetuned.demo.hog", str(32 * MIB), str(1 << 40)]) as process:
        try:
            limit = time.monotonic() + 30
            while anonymous_bytes(process.pid) < 32 * MIB:
                assert process.poll() is None
                assert time.monotonic() < limit
                time.sleep(0.01)
            process.terminate()
            assert process.wait(20) == -signal.SIGTERM
        finally:
            process.kill()


def anonymous_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)
