"""The daemon under show: started as a user would start it, started again when somebody kills it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.demo.tied import tied
from moetuned.schema.snapshot import Snapshot

STOP_SECONDS = 60.0
MOST_RESTARTS = 5


class DaemonProcess:
    """`moetuned run` with the demo's config and directories."""

    def __init__(self, config: str, state: str, runtime: str, log: str) -> None:
        self._command = [
            *(sys.executable, "-m", "moetuned.daemon", "run", "--config", config),
            *("--state-dir", state, "--runtime-dir", runtime),
        ]
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None
        self.client = Client(os.path.join(runtime, "api.sock"), timeout_seconds=3.0)
        self.killed = 0

    def start(self) -> None:
        """Start it."""
        with open(self._log, "ab") as log:
            # A session of its own: Ctrl-C is for the demo, which ends the daemon in order.
            self._child = subprocess.Popen(
                tied(self._command, signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def keep_alive(self) -> bool:
        """Start it again if it was killed; True when it was. Raises ChildProcessError when it ends by itself."""
        if self._child is None or (code := self._child.poll()) is None:
            return False
        if code != -signal.SIGKILL or self.killed >= MOST_RESTARTS:
            raise ChildProcessError(f"the daemon ended with code {code}; its log ends:\n{self.log_end()}")
        self.killed += 1
        self.start()
        return True

    def snapshot(self) -> Snapshot | None:
        """What it shows; None while it cannot be reached."""
        try:
            return self.client.status()
        except DaemonError:
            return None

    def stop(self) -> int | None:
        """End it in order and wait; its exit code, None when it had to be killed."""
        child = self._child
        if child is None:
            return 0
        if child.poll() is None:
            child.terminate()
        try:
            return child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return None

    def log_end(self, lines: int = 8) -> str:
        """The last lines of its log."""
        with open(self._log, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-lines:])
