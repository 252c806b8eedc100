"""What the daemon costs with two backends at 1 s ticks, and what `moetunectl status` costs beside a bare interpreter."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from measuring import Figure, cpu_seconds, make_model, middle, status_bytes

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.schema.snapshot import Snapshot

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]
SETTLE_TICKS = 20
TICKS = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def entry(name: str, model: Path, port: int, log: Path) -> dict[str, object]:
    command = [
        sys.executable, "-m", "moetuned.simulator", "serve", "-m", "{model}", "-c", "{context}", "--port", str(port),
        "--metrics", "-t", "1",
    ]  # fmt: skip
    return {
        "name": name,
        "model": str(model),
        "url": f"http://127.0.0.1:{port}",
        "supervise": {"by": "process", "command": command, "log": str(log)},
        "context": {"preferred": 2048, "minimum": 2048},
    }


class Running:
    """A daemon as a process, asked through its socket."""

    def __init__(self, directory: Path, config: dict[str, object]) -> None:
        path = directory / "moetuned.yaml"
        path.write_text(json.dumps({"api": {"listen": False}, **config}))
        self.socket = str(directory / "run" / "api.sock")
        (directory / "run").mkdir()
        command = [sys.executable, "-m", "moetuned.daemon", "run", "--config", str(path)]
        command += ["--state-dir", str(directory / "state"), "--runtime-dir", str(directory / "run")]
        with (directory / "daemon.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def snapshot(self) -> Snapshot | None:
        with contextlib.suppress(DaemonError):
            return Client(self.socket).status()
        return None

    def wait_for_ticks(self, count: int) -> int:
        while (snapshot := self.snapshot()) is None or snapshot.daemon.ticks < count:
            assert self.process.poll() is None, "the daemon ended"
            time.sleep(0.2)
        return snapshot.daemon.ticks

    def wait_until_ready(self, backends: int) -> None:
        while True:
            snapshot = self.snapshot()
            ready = [] if snapshot is None else [view for view in snapshot.backends if view.verdict.phase == "idle"]
            if len(ready) == backends:
                return
            assert self.process.poll() is None, "the daemon ended"
            time.sleep(0.2)


@contextlib.contextmanager
def running(directory: Path, config: dict[str, object]) -> Iterator[Running]:
    daemon = Running(directory, config)
    try:
        yield daemon
    finally:
        daemon.process.terminate()
        try:
            daemon.process.wait(60)
        except subprocess.TimeoutExpired:
            daemon.process.kill()
            daemon.process.wait()


def test_daemon_with_two_backends(on_disk: Path, figure: Figure) -> None:
    model = make_model(on_disk / "model.gguf", "128M")
    ports = free_port(), free_port()
    backends = [entry(f"b{port}", model, port, on_disk / f"{port}.log") for port in ports]
    # Other backends on this machine would be watched as well, and counted; what looking for them costs is measured apart.
    config = {"backends": backends, "watch": {"discover": False}}
    with running(on_disk, config) as daemon, contextlib.ExitStack() as stack:
        daemon.wait_until_ready(len(backends))
        for port in ports:
            ask = [sys.executable, "-m", "moetuned.simulator", "ask", f"http://127.0.0.1:{port}", "-n", "0"]
            asking = subprocess.Popen([*ask, "--pause", "0.5"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(asking.wait)
            stack.callback(asking.kill)
        first = daemon.wait_for_ticks(SETTLE_TICKS)
        pid, began, cpu = daemon.process.pid, time.monotonic(), cpu_seconds(daemon.process.pid)
        time.sleep(TICKS)
        took = time.monotonic() - began
        loop, lanes = (after - before for before, after in zip(cpu, cpu_seconds(pid), strict=True))
        ticks = daemon.wait_for_ticks(first + 1) - first
        figure("daemon with two busy backends, CPU a tick", (loop + lanes) / ticks * 1000, "ms")
        figure("of that the loop", loop / ticks * 1000, "ms")
        figure("of that the lanes (probes, residency)", lanes / ticks * 1000, "ms")
        figure("daemon with two busy backends, CPU", (loop + lanes) / took * 100, "% of a core")
        figure(f"daemon with two busy backends, RSS after {ticks} ticks", status_bytes(pid, "VmRSS") / (1 << 20), "MiB")
        assert ticks >= TICKS * 0.8, "it fell behind"


def seconds_of(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def test_moetunectl_status(tmp_path: Path, figure: Figure) -> None:
    with running(tmp_path, {"watch": {"discover": False}}) as daemon:
        daemon.wait_for_ticks(2)
        program = [sys.executable, "-c", "from moetuned.cli.main import main; main()"]
        commands = {
            "moetunectl status": [*program, "status", "--socket", daemon.socket],
            "moetunectl --help": [*program, "--help"],
            "python with click imported": [sys.executable, "-c", "import click"],
        }
        runs = [{name: seconds_of(command) for name, command in commands.items()} for _ in range(15)]
    status, listed, bare = (middle(run[name] for run in runs) for name in commands)
    figure("moetunectl status, time", status * 1000, "ms")
    figure("moetunectl --help, time", listed * 1000, "ms")
    figure("python with click imported, time", bare * 1000, "ms")
    figure("moetunectl status takes", status / bare, "times as long")
    figure("moetunectl --help takes", listed / bare, "times as long")
    assert status < 5 * bare
    assert listed < 3 * bare
