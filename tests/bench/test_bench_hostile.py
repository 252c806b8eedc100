"""Whether ticks stay on time while two hundred clients mean ill: lateness and count with them and without, in one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from measuring import Figure, middle, status_bytes
from test_bench_daemon import Running, free_port, running

from moetuned.api.client import Client
from moetuned.schema.snapshot import Snapshot

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]
TICKS = 50
INTERVAL_SECONDS = 0.2
MIB = 1 << 20


def watched(daemon: Running) -> tuple[float, float]:
    """Of the next `TICKS` ticks: the median of how late they began (seconds), and how many there were for each that was due."""
    late: list[float] = []
    last: Snapshot | None = None
    first, began = None, time.monotonic()
    while len(late) < TICKS:
        found = daemon.snapshot()
        if found is not None and found.daemon.tick_lateness_seconds is not None:
            if first is None:
                first, began = found.daemon.ticks, time.monotonic()
            if last is None or found.daemon.ticks != last.daemon.ticks:
                late.append(found.daemon.tick_lateness_seconds)
                last = found
        time.sleep(INTERVAL_SECONDS / 4)
    assert last is not None
    assert first is not None
    return middle(late), (last.daemon.ticks - first) * INTERVAL_SECONDS / (time.monotonic() - began)


def test_ticks_stay_on_time_under_hostile_load(tmp_path: Path, figure: Figure) -> None:
    port = free_port()
    watch = {"discover": False, "interval": INTERVAL_SECONDS, "idle_interval": INTERVAL_SECONDS}
    command = [sys.executable, "-m", "fakes.hostile_clients", str(port)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with running(tmp_path, {"api": {"listen": f"127.0.0.1:{port}"}, "watch": watch}) as daemon:
        daemon.wait_for_ticks(5)
        # What the first scrape imports comes once, whoever asks, and has its bar in test_bench_tick: here it is what a crowd adds to that.
        Client(daemon.socket).metrics()
        quiet, quiet_share = watched(daemon)
        before = status_bytes(daemon.process.pid, "VmRSS")
        clients = subprocess.Popen(
            [*command, daemon.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
        )
        try:
            loud, loud_share = watched(daemon)
            after = status_bytes(daemon.process.pid, "VmRSS")
            told, _ = clients.communicate(timeout=60)
        finally:
            clients.kill()
            clients.wait()
    connections = sum(each["connections"] for each in json.loads(told).values())
    figure("ticks begin late, at rest, median", quiet * 1000, "ms")
    figure("ticks begin late, under 200 hostile clients, median", loud * 1000, "ms")
    figure("connections of the hostile clients meanwhile", connections, "")
    figure("ticks made of those due, at rest", quiet_share * 100, "%")
    figure("ticks made of those due, under 200 hostile clients", loud_share * 100, "%")
    figure("RSS that 200 hostile clients add", (after - before) / MIB, "MiB")
    assert loud_share > 0.95 * quiet_share
    assert after - before < 4 * MIB
