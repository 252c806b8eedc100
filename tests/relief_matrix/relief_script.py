"""A user's script that restarts the backend, and goes wrong where it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from relief_watch import command_line

from moetuned.host.processes import ProcessHandle, identify

TIMEOUT_SECONDS = 6.0


class Does(StrEnum):
    """What the script does."""

    WORKS = "works"
    HANGS_FIRST = "hangs before it does anything"
    HANGS_LAST = "hangs when it is done"
    FAILS = "fails before it does anything"
    SLOW = "takes its time before it does anything"
    NOTHING = "does nothing and says that it did"
    LEAVES_TWO = "starts another one elsewhere and leaves the one before"


_PROGRAM = """#!{python}
import json, os, signal, subprocess, sys, time
directory, context = {directory!r}, sys.argv[1]
with open(directory + "/does") as file:
    does = file.read()
if does.startswith("hangs before"):
    time.sleep(60)
if does.startswith("fails"):
    sys.exit("the other end does not answer")
if does.startswith("takes its time"):
    time.sleep(4)
if does.startswith("does nothing"):
    sys.exit(0)
with open(directory + "/start.json") as file:
    start = json.load(file)
words = [context if word == "{{context}}" else word for word in start["command"]]
if does.startswith("starts another"):
    words = start["elsewhere"]
elif os.path.exists(directory + "/pid"):
    with open(directory + "/pid") as file:
        old = int(file.read())

    def runs():
        try:
            with open(f"/proc/{{old}}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    until = time.monotonic() + 2
    if runs():
        os.kill(old, signal.SIGTERM)
    while runs():
        if time.monotonic() > until:
            os.kill(old, signal.SIGKILL)
        time.sleep(0.02)
quiet = subprocess.DEVNULL
new = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, env={{**os.environ, **start["environment"]}})
with open(directory + "/pids", "a") as file:
    file.write(f"{{new.pid}}\\n")
if not does.startswith("starts another"):
    with open(directory + "/pid", "w") as file:
        file.write(str(new.pid))
if does.startswith("hangs when"):
    time.sleep(60)
"""


class UserScript:
    """The script, and what it started."""

    def __init__(self, directory: Path, command: Sequence[str], elsewhere: Sequence[str]) -> None:
        """`command`: of the backend, with the placeholder {context}; `elsewhere`: of another one."""
        directory.mkdir(mode=0o755)
        self._directory = directory
        self.path = directory / "restart"
        self.path.write_text(_PROGRAM.format(python=sys.executable, directory=str(directory)))
        self.path.chmod(0o755)
        environment = {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path)}
        start = {"command": list(command), "environment": environment, "elsewhere": list(elsewhere)}
        (directory / "start.json").write_text(json.dumps(start))
        self.does(Does.WORKS)

    def does(self, what: Does) -> None:
        (self._directory / "does").write_text(what.value)

    def start(self, context: int) -> None:
        """As its owner does by hand."""
        subprocess.run([str(self.path), str(context)], check=True)

    @property
    def pids(self) -> list[int]:
        """Of what it started and what still runs."""
        started = self._directory / "pids"
        found = [int(line) for line in started.read_text().splitlines()] if started.exists() else []
        return [pid for pid in found if (identity := identify(pid)) is not None and _runs(identity.pid)]

    def close(self) -> None:
        """Whatever happened: none of it is left, nor the script itself, which goes on when a daemon is killed."""
        for pid in running_with(str(self.path)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self.pids:
            identity = identify(pid)
            if identity is not None:
                with contextlib.suppress(ProcessLookupError):
                    handle = ProcessHandle(identity)
                    handle.send(signal.SIGKILL)
                    handle.close()
        while self.pids:
            time.sleep(0.02)


def running_with(word: str) -> list[int]:
    """Pids of those that have this word in their command line, as a whole."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and word in command_line(int(name))]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


@contextlib.contextmanager
def user_script(
    directory: Path, command: Sequence[str], elsewhere: Sequence[str], context: int
) -> Iterator[UserScript]:
    """The backend runs; ended whatever happens."""
    found = UserScript(directory, command, elsewhere)
    try:
        found.start(context)
        yield found
    finally:
        found.close()
