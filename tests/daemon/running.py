"""A daemon that runs: in this process, driven turn by turn, or as a process of its own that is asked through its socket."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError, DaemonUnreachable
from moetuned.daemon.app import App, Paths
from moetuned.daemon.config_loading import load_checked
from moetuned.daemon.loop import Loop
from moetuned.decide.supervision import Timing
from moetuned.host.clock import Clock, RealClock
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.service_notify import ServiceNotifier
from moetuned.schema.event import Event
from moetuned.schema.snapshot import BackendView, Snapshot

LIMIT_SECONDS = 60.0
"""Only ends a test that would otherwise hang."""
QUICK = Timing(terminate_seconds=0.3, backoff_seconds=(0.02,), breaker_exits=5, breaker_seconds=600.0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def stand_in(model: Path | str, port: int, *faults: str) -> list[str]:
    """The command of a stand-in; {context} and {prompt_cache_mib} are for the daemon to fill in."""
    return [
        sys.executable, "-m", "moetuned.simulator", "serve", "-m", str(model), "--port", str(port), "--metrics",
        "-c", "{context}", "--cache-ram", "{prompt_cache_mib}", *faults,
    ]  # fmt: skip


def backend(name: str, model: Path, port: int, *faults: str, **supervise: Any) -> dict[str, Any]:
    """An entry of the config for a supervised stand-in."""
    log = str(model.parent / f"{name}-{port}.log")
    return {
        "name": name,
        "model": str(model),
        "url": f"http://127.0.0.1:{port}",
        "context": {"preferred": 8192, "minimum": 1024},
        "prompt_cache_mib": 64,
        "supervise": {"by": "process", "command": stand_in("{model}", port, *faults), "log": log, **supervise},
    }


def is_running(pid: int) -> bool:
    """Whether the process runs; one that nobody has collected yet does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


class InProcess:
    """The daemon in this process and thread. `turn` is what its loop does once."""

    def __init__(
        self,
        directory: Path,
        config: dict[str, Any],
        *,
        clock: Clock | None = None,
        fs: HostFS | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.config_path = directory / "moetuned.yaml"
        self.records = directory / "run" / "backends"
        self.journal = directory / "state" / "undo.jsonl"
        self.sent: list[str] = []
        self.write(config)
        clock = clock or RealClock()
        self.loop = Loop(clock)
        fs = fs or RealFS()
        self.app = App(
            load_checked(str(self.config_path)),
            Paths(str(self.config_path), str(self.journal), str(self.records), str(directory / "run" / "api.sock")),
            clock,
            self.loop,
            ServiceNotifier(environ or {"NOTIFY_SOCKET": "@nobody"}, self.sent.append),
            fs,
            QUICK,
        )

    def write(self, config: dict[str, Any] | str) -> None:
        if not isinstance(config, str):
            # Looks come at every interval, also when nothing happens, unless a test says otherwise.
            watch = {"idle_interval": "200ms", **config.get("watch", {})}
            config = yaml.safe_dump({"api": {"listen": False}, **config, "watch": watch})
        self.config_path.write_text(config)

    def turn(self, wait: float = 0.05) -> None:
        self.loop.run_once(wait)

    def until(self, condition: Callable[[Snapshot], Any], what: str) -> Snapshot:
        limit = time.monotonic() + LIMIT_SECONDS
        while not condition(self.snapshot):
            assert time.monotonic() < limit, f"it never came to this: {what}\n{self.snapshot}"
            self.turn()
        return self.snapshot

    @property
    def snapshot(self) -> Snapshot:
        assert self.app.snapshot is not None
        return self.app.snapshot

    def view(self, name: str) -> BackendView | None:
        return next((each for each in self.snapshot.backends if each.name == name), None)

    def phase_is(self, name: str, phase: str) -> Callable[[Snapshot], bool]:
        return lambda _: (view := self.view(name)) is not None and view.verdict.phase == phase

    def event_names(self) -> list[str]:
        return [event.name.value for event in self.snapshot.events]

    def stop(self) -> None:
        """As by SIGTERM: until it has left its loop."""
        self.app.stop()
        limit = time.monotonic() + LIMIT_SECONDS
        while self.loop._running:
            assert time.monotonic() < limit, "it does not stop"
            self.turn()


@contextlib.contextmanager
def in_process(directory: Path, config: dict[str, Any], **options: Any) -> Iterator[InProcess]:
    """Started, and ended with all its backends whatever happens."""
    daemon = InProcess(directory, config, **options)
    daemon.loop._running = True
    try:
        daemon.app.start()
        yield daemon
    finally:
        daemon.app._roster.kill()
        daemon.app.close()
        for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(
                signal_number, signal.default_int_handler if signal_number == signal.SIGINT else signal.SIG_DFL
            )


class DaemonProcess:
    """`moetuned run` as a process, asked through its socket."""

    def __init__(self, directory: Path, config: dict[str, Any], environ: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.config_path = directory / "moetuned.yaml"
        self.state = directory / "state"
        self.runtime = directory / "run"
        self.log_path = directory / "daemon.log"
        self.config_path.write_text(yaml.safe_dump({"api": {"listen": False}, **config}))
        self.environ = {**os.environ, **(environ or {})}
        self.client = Client(str(self.runtime / "api.sock"))
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "moetuned.daemon", "run", "--config", str(self.config_path)]
        command += ["--state-dir", str(self.state), "--runtime-dir", str(self.runtime)]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.environ)

    def again(self) -> None:
        self.process = self._start()

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def until(self, condition: Callable[[Snapshot], Any], what: str) -> Snapshot:
        """Ask for the status until it is so."""
        limit = time.monotonic() + LIMIT_SECONDS
        snapshot: Snapshot | None = None
        while time.monotonic() < limit:
            with contextlib.suppress(DaemonError, DaemonUnreachable):
                snapshot = self.client.status()
                if snapshot.daemon.pid == self.process.pid and condition(snapshot):
                    return snapshot
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
                raise AssertionError(f"the daemon ended with {self.process.returncode}:\n{self.log}")
        raise AssertionError(f"it never came to this: {what}\n{snapshot}\n{self.log}")

    def events(self) -> list[Event]:
        return self.client.events()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_SECONDS)


@contextlib.contextmanager
def daemon_process(directory: Path, config: dict[str, Any], **options: Any) -> Iterator[DaemonProcess]:
    """Started, and ended whatever happens; a test that kills it ends the backends it left."""
    daemon = DaemonProcess(directory, config, **options)
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.process.terminate()
            try:
                daemon.process.wait(LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.process.kill()
                daemon.process.wait()


def view_of(snapshot: Snapshot, name: str) -> BackendView | None:
    return next((each for each in snapshot.backends if each.name == name), None)
