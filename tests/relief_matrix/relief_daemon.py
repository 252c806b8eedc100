"""The daemon as a user runs it: a process with its own config, socket and directories, asked through its socket only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.schema.event import Event
from moetuned.schema.snapshot import Snapshot

STOP_SECONDS = 90.0
ASK_SECONDS = 0.2
Program = tuple[str, ...]
"""Words that run the daemon; what it is told follows."""
PROGRAM: Program = (sys.executable, "-m", "moetuned.daemon")


@dataclass(frozen=True)
class Moment:
    """What the daemon said of one backend at some time (monotonic seconds)."""

    at: float
    backend: str
    context: int | None
    memory: str
    phase: str
    restarts: int
    pid: int | None
    headroom_bytes: int | None
    would_do: tuple[str, ...]


class DaemonUnderTest:
    """`moetuned run` in `directory`. `events` and `moments` hold what it said so far, also before it was killed."""

    def __init__(
        self,
        directory: Path,
        config: dict[str, Any],
        environ: dict[str, str] | None = None,
        program: Program = PROGRAM,
    ) -> None:
        self.directory = directory
        self._program = program
        self.state, self.runtime, self.log_path = directory / "state", directory / "run", directory / "daemon.log"
        self.config_path = directory / "moetuned.yaml"
        self.config_path.write_text(json.dumps({"api": {"listen": False}, **config}, indent=1))  # JSON is YAML
        self._environ = {**os.environ, **(environ or {})}
        self._client = Client(str(self.runtime / "api.sock"), timeout_seconds=3.0)
        self.events: list[Event] = []
        self.moments: list[Moment] = []
        self.last: Snapshot | None = None
        self.unasked_deaths: list[int] = []
        self.code: int | None = None
        self._meant = False
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.process = self._spawn()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [*self._program, "run", "--config", str(self.config_path)]
        command += ["--state-dir", str(self.state), "--runtime-dir", str(self.runtime)]
        with self.log_path.open("ab") as log:
            # A session of its own: nothing that ends the test's group ends it before it could take back what it did.
            return subprocess.Popen(command, stdout=log, stderr=log, env=self._environ, start_new_session=True)

    def kill(self) -> None:
        """kill -9, as the OOM killer would."""
        self._meant = True
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def again(self) -> None:
        self.process, self._meant = self._spawn(), False

    def alive(self) -> bool:
        return self.process.poll() is None

    def finish(self) -> int | None:
        """End it in order; its exit code, None when it had to be killed."""
        if not self._meant and (code := self.process.poll()) is not None:
            self.unasked_deaths.append(code)
        self._ask()
        self._stop.set()
        self._thread.join(10.0)
        self._meant = True
        if self.alive():
            self.process.terminate()
        try:
            self.code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return self.code

    def close(self) -> None:
        """Whatever happened: no daemon and no thread is left."""
        self._stop.set()
        self._thread.join(10.0)
        if self.alive():
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def named(self, name: str, backend: str | None = None) -> list[Event]:
        """Events of this name, oldest first."""
        return [one for one in self.events if one.name.value == name and backend in (None, one.backend)]

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _follow(self) -> None:
        while not self._stop.wait(ASK_SECONDS):
            self._ask()

    def _ask(self) -> None:
        with self._lock:
            try:
                snapshot = self._client.status()
                events = self._client.events()
            except DaemonError:
                return
            now, self.last = time.monotonic(), snapshot
            known = {(one.id, one.wall_seconds) for one in self.events}
            self.events += [one for one in events if (one.id, one.wall_seconds) not in known]
            for view in snapshot.backends:
                moment = Moment(
                    now, view.name, view.context.now, view.verdict.memory.value, view.verdict.phase.value, view.restarts,
                    view.pid, view.memory.headroom_bytes, view.would_do,
                )  # fmt: skip
                self.moments.append(moment)
