"""A service manager of the test's own with one unit, and the program `systemctl` that asks it; its process is a real one.

What counts of systemd here: one process at a time, jobs (a stop replaces a restart, a restart does not replace a stop), a deadline for the end,
and nothing is started again unless a restart was asked for: whatever ends the process by mistake loses the backend, and that is seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNIT = "stand-in.service"
STOP_SECONDS = 4.0
"""What does not end for so long after SIGTERM is killed (TimeoutStopSec=)."""
HANG_SECONDS = 60.0
_UNIT_TEXT = """\
[Service]
Environment=MOETUNED_CONTEXT={context}
EnvironmentFile=-{environment}
ExecStart=stand-in -c ${{MOETUNED_CONTEXT}}
[X-Moetuned]
context=MOETUNED_CONTEXT
"""
_PROGRAM = """#!{python} -I
import json, socket, sys, time
with socket.socket(socket.AF_UNIX) as link:
    link.connect({socket!r})
    with link.makefile("rw") as file:
        file.write(json.dumps(sys.argv[1:]) + "\\n")
        file.flush()
        answer = json.loads(file.readline())
time.sleep(answer["hang"])
sys.stdout.write(answer["out"])
sys.stderr.write(answer["err"])
sys.exit(answer["code"])
"""


@dataclass(frozen=True)
class Ill:
    """What goes wrong with a verb: it fails with this text, or never answers; `done`: what it was asked is done nevertheless."""

    text: str | None = None
    done: bool = False


class Refused(Exception):  # noqa: N818  an answer
    """It is not done; the text says why."""


def _now() -> int:
    return time.monotonic_ns() // 1000


class FakeSystemd:
    """The manager. `command` gives the words of the process for a context; the file of variables is `environment`."""

    def __init__(self, directory: Path, environment: Path, preferred: int, command: Callable[[int], list[str]]) -> None:
        self.environment = environment
        self.ill: dict[str, Ill] = {}
        self.comes_back = True
        self.asked: list[list[str]] = []
        self._preferred, self._command = preferred, command
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._active, self._sub, self._result, self._job = "inactive", "dead", "success", ""
        self._times = {"ExecMainStart": 0, "ExecMainExit": 0, "ActiveExit": 0}
        self._main = (0, 0)
        self._unit_file = directory / UNIT
        self._unit_file.write_text(_UNIT_TEXT.format(context=preferred, environment=environment))
        programs = directory / "programs"
        programs.mkdir()
        address = str(directory / "bus")
        (programs / "systemctl").write_text(_PROGRAM.format(python=sys.executable, socket=address))
        (programs / "systemctl").chmod(0o755)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(address)
        self._socket.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    # What its owner does

    def start(self) -> None:
        with self._lock:
            self._start()

    def stop_by_owner(self) -> None:
        """systemctl stop: it replaces whatever job there is."""
        with self._lock:
            self._job = "stop"
            self._end_process()

    def close(self) -> None:
        """Whatever happened: no process of it is left."""
        self._socket.close()
        with self._lock:
            self._job, process = "stop", self._process
        if process is not None:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int | None:
        with self._lock:
            return None if self._process is None else self._process.pid

    @property
    def settled(self) -> bool:
        with self._lock:
            return not self._job

    def said_context(self) -> int:
        """What the next start will be given."""
        with contextlib.suppress(OSError):
            for line in self.environment.read_text().splitlines():
                if line.startswith("MOETUNED_CONTEXT="):
                    return int(line.partition("=")[2])
        return self._preferred

    # Its unit

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command(self.said_context()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._active, self._sub, self._result, self._job, self._main = "active", "running", "success", "", (0, 0)
        self._times["ExecMainStart"] = _now()
        threading.Thread(target=self._wait, args=(self._process,), daemon=True).start()

    def _end_process(self) -> None:
        """Ask it to end; `_wait` does the rest."""
        process = self._process
        if process is None:
            self._ended(None)
            return
        if self._active == "deactivating":
            return
        self._active, self._sub, self._times["ActiveExit"] = "deactivating", "stop-sigterm", _now()
        process.terminate()
        later = threading.Timer(STOP_SECONDS, process.kill)
        later.daemon = True
        later.start()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        with self._lock:
            self._ended(process.returncode)

    def _ended(self, code: int | None) -> None:
        asked = self._active == "deactivating"
        self._process = None
        if code is not None:
            self._times["ExecMainExit"] = _now()
            self._main = (2, -code) if code < 0 else (1, code)
        if not asked and code is not None:
            self._times["ActiveExit"] = _now()
        good = code in (None, 0) or (asked and code == -signal.SIGTERM)
        self._result = "success" if good else "exit-code" if (code or 0) > 0 else "signal"
        self._active, self._sub = ("inactive", "dead") if good else ("failed", "failed")
        if self._job == "restart" and self.comes_back:
            self._start()
        elif self._job == "restart":
            self._active, self._sub, self._result, self._job = "failed", "failed", "resources", ""
        else:
            self._job = ""

    # Its bus

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._socket.accept()
                threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError, ValueError), link.makefile("rw") as file:
            words = [word for word in json.loads(file.readline()) if not word.startswith("-")]
            options = words[1:]
            verb = words[0]
            answer: dict[str, Any] = {"code": 0, "out": "", "err": "", "hang": 0.0}
            with self._lock:
                self.asked.append(words)
                ill = self.ill.get(verb)
                try:
                    if ill is None or ill.done:
                        answer["out"] = self._do(verb, options)
                except Refused as why:
                    answer.update(code=1, err=str(why))
                if ill is not None and ill.text is None:
                    answer["hang"] = HANG_SECONDS
                elif ill is not None:
                    answer.update(code=1, err=ill.text)
            file.write(json.dumps(answer) + "\n")
            file.flush()

    def _do(self, verb: str, _options: list[str]) -> str:
        if verb == "show":
            return self._show()
        if verb in ("restart", "try-restart"):
            if self._job == "stop":
                raise Refused("Transaction is destructive")
            if self._process is None and verb == "try-restart":
                return ""
            self._job = "restart"
            self._end_process()
        elif verb == "kill" and self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
        elif verb not in ("kill", "reset-failed"):
            raise Refused(f"Unknown command verb {verb}.")
        return ""

    def _show(self) -> str:
        values = {
            "Id": UNIT, "LoadState": "loaded", "ActiveState": self._active, "SubState": self._sub, "Result": self._result,
            "Type": "exec", "Restart": "no", "MainPID": self.pid or 0, "ExecMainCode": self._main[0], "ExecMainStatus": self._main[1],
            **{f"{name}TimestampMonotonic": at for name, at in self._times.items()}, "Job": 7 if self._job else "",
            "FragmentPath": self._unit_file, "DropInPaths": "", "EnvironmentFiles": f"{self.environment} (ignore_errors=yes)",
            "NeedDaemonReload": "no",
        }  # fmt: skip
        return "".join(f"{name}={value}\n" for name, value in values.items())


@contextlib.contextmanager
def fake_systemd(
    directory: Path, environment: Path, preferred: int, command: Callable[[int], list[str]]
) -> Iterator[FakeSystemd]:
    """Its unit runs; ended whatever happens."""
    found = FakeSystemd(directory, environment, preferred, command)
    try:
        found.start()
        yield found
    finally:
        found.close()
