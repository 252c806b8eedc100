"""What a tick costs: an hour of ticks with two busy stand-ins as fast as they go, and 100,000 ticks of a recorded trace."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes.server_process import started
from measuring import Figure, make_model

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
HOUR_TICKS = 3600
REPLAYED_TICKS = 100_000
BAR_SECONDS = 0.002
BAR_RSS_BYTES = 36 << 20
SCRAPED_BYTES = 6 << 20
"""Most that being scraped may add to the bar: prometheus_client is imported then, and OpenSSL with it."""
GROWTH_BYTES = 1 << 20
MIB = 1 << 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(*arguments: str) -> dict[str, Any]:
    program = str(Path(__file__).with_name("tick_hour.py"))
    done = subprocess.run([sys.executable, program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_an_hour_of_ticks(on_disk: Path, figure: Figure) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to read the stand-ins' io")
    model = make_model(on_disk / "model.gguf", "128M")
    with contextlib.ExitStack() as stack:
        urls = []
        for _ in range(2):
            port = str(free_port())
            server = [
                "moetuned.simulator",
                "serve",
                "-m",
                str(model),
                "--port",
                port,
                "--metrics",
                "-c",
                "2048",
                "-t",
                "1",
            ]
            stack.enter_context(started(*server)).wait_for(r"listening on")
            urls.append(f"http://127.0.0.1:{port}")
            ask = [sys.executable, "-m", "moetuned.simulator", "ask", urls[-1], "-n", "0", "--pause", "0.5"]
            asking = subprocess.Popen(ask, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(asking.wait)
            stack.callback(asking.kill)
        found = run("hour", str(on_disk), str(HOUR_TICKS), *urls)
    figure("a tick with two busy backends, CPU of the loop", found["loop"] * 1000, "ms")
    figure("a tick with two busy backends, CPU of the lanes", found["lanes"] * 1000, "ms")
    figure("the same with nothing in the CPU's caches, loop", found["cold_loop"] * 1000, "ms")
    figure("the same with nothing in the CPU's caches, lanes", found["cold_lanes"] * 1000, "ms")
    figure(f"RSS after {HOUR_TICKS} ticks", found["rss"] / MIB, "MiB")
    figure("being scraped adds to that", (found["scraped"] - found["rss"]) / MIB, "MiB")
    assert found["loop"] + found["lanes"] <= BAR_SECONDS
    assert found["rss"] <= BAR_RSS_BYTES
    assert found["scraped"] <= BAR_RSS_BYTES + SCRAPED_BYTES


def test_no_growth(on_disk: Path, figure: Figure) -> None:
    trace = Path(__file__).parents[1] / "data" / "traces" / "squeeze.jsonl.gz"
    found = run("replay", str(on_disk), str(REPLAYED_TICKS), str(trace))
    first, last = found["rss"]
    figure(f"RSS after {REPLAYED_TICKS // 10} replayed ticks", first / MIB, "MiB")
    figure(f"RSS after {REPLAYED_TICKS} replayed ticks", last / MIB, "MiB")
    figure(f"objects after {REPLAYED_TICKS // 10} replayed ticks", found["objects"][0], "")
    figure(f"objects after {REPLAYED_TICKS} replayed ticks", found["objects"][1], "")
    assert last - first <= GROWTH_BYTES
    assert found["objects"][1] <= 1.02 * found["objects"][0]
