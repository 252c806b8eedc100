"""A daemon that is killed (SIGKILL) at the worst moments of a start and of a restart: never two backends, none lost.

The daemon is a real process; the moment is chosen by a wrapper around one of its functions, which a config cannot reach.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import DaemonProcess, backend, daemon_process, free_port, is_running, view_of

from moetuned.host.processes import variables
from moetuned.host.started_processes import VARIABLE
from moetuned.state import backend_record

pytestmark = pytest.mark.backend
WATCH = {"watch": {"discover": False, "interval": "200ms"}, "warm": {"enabled": False}}

WRAPPED = """
import os, signal, sys
import moetuned.daemon.process_supervisor as owner, moetuned.daemon.supervisor as base
from moetuned.daemon.main import main
from moetuned.state import backend_record

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def before(where, name, which=lambda *_: True):
    true = getattr(where, name)
    def wrapped(*arguments, **more):
        if which(*arguments):
            die()
        return true(*arguments, **more)
    setattr(where, name, wrapped)

def after(where, name, which=lambda *_: True):
    true = getattr(where, name)
    def wrapped(*arguments, **more):
        result = true(*arguments, **more)
        if which(*arguments):
            die()
        return result
    setattr(where, name, wrapped)

exec(sys.argv.pop(1))
main()
"""

MOMENTS = {
    "the intention is written": "after(backend_record, 'write', lambda record, directory: record.pid is None)",
    "the process is started": "after(owner.spawn, 'start')",
    "before the record is written": "before(backend_record, 'write', lambda record, directory: record.pid is not None)",
    "the record is written": "after(backend_record, 'write', lambda record, directory: record.pid is not None)",
}
AT_THE_END = {
    "its end is recorded": "after(backend_record, 'write', lambda record, directory: record.ending)",
    "it was asked to end": "after(owner.ProcessSupervisor, '_terminate')",
    "it has ended": "before(owner.ProcessSupervisor, '_gone')",
    "before its record is removed": "before(backend_record, 'remove')",
}


class KilledDaemon(DaemonProcess):
    """Its first process kills itself; those that follow do not."""

    moment = ""

    def _start(self) -> subprocess.Popen[bytes]:
        if not self.moment:
            return super()._start()
        command = [sys.executable, "-c", WRAPPED, self.moment, "run", "--config", str(self.config_path)]
        command += ["--state-dir", str(self.state), "--runtime-dir", str(self.runtime)]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.environ)


def backends_of(model: Path) -> list[int]:
    """Pids of all that run with this model and were started by a daemon."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and is_running(int(name)):
            try:
                words = Path(f"/proc/{name}/cmdline").read_text(errors="replace").split("\0")
            except OSError:
                continue
            if str(model) in words and "serve" in words:
                found.append(int(name))
    return found


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Iterator[Path]:
    """A name for it that no other test's backend has."""
    path = tmp_path / "own.gguf"
    path.symlink_to(small_model)
    yield path
    for pid in backends_of(path):
        os.kill(pid, signal.SIGKILL)


def killed_at(moment: str, directory: Path, config: dict[str, Any]) -> KilledDaemon:
    daemon = KilledDaemon.__new__(KilledDaemon)
    daemon.moment = moment
    daemon.__init__(directory, config)  # type: ignore[misc]
    daemon.moment = ""
    return daemon


def ready(daemon: DaemonProcess) -> int:
    snapshot = daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "ready")
    return int(view_of(snapshot, "glm").pid)


@pytest.mark.parametrize("moment", MOMENTS)
def test_between_a_start_and_its_record(tmp_path: Path, model: Path, moment: str) -> None:
    config = {**WATCH, "backends": [backend("glm", model, free_port())]}
    daemon = killed_at(MOMENTS[moment], tmp_path, config)
    assert daemon.process.wait(60) == -signal.SIGKILL, daemon.log
    left = backends_of(model)
    assert len(left) == (0 if moment == "the intention is written" else 1)
    record = backend_record.read("glm", f"{daemon.runtime}/backends")
    assert record is not None
    assert (record.pid is None) == (moment != "the record is written")
    daemon.again()
    try:
        pid = ready(daemon)
        assert backends_of(model) == [pid]
        if left:
            assert left == [pid], "it was taken over"
        record = backend_record.read("glm", f"{daemon.runtime}/backends")
        assert record is not None
        assert (record.pid, record.start_word) == (pid, variables(pid, [VARIABLE])[VARIABLE])
        assert daemon.events() == []
    finally:
        assert daemon.end() == 0
    assert backends_of(model) == []


@pytest.mark.parametrize("moment", AT_THE_END)
def test_between_the_end_and_the_next_start(tmp_path: Path, model: Path, moment: str) -> None:
    """The daemon is told to stop and killed in the middle of that; the next one begins where that left it."""
    daemon = killed_at(AT_THE_END[moment], tmp_path, {**WATCH, "backends": [backend("glm", model, free_port())]})
    first = ready(daemon)
    assert daemon.end() == -signal.SIGKILL, daemon.log
    daemon.again()
    try:
        pid = ready(daemon)
        limit = time.monotonic() + 60
        while is_running(first) or pid == first:
            assert time.monotonic() < limit, "the one that was asked to end is still there"
            pid = ready(daemon)
        assert backends_of(model) == [pid]
        assert "backend_down" not in [event.name.value for event in daemon.events()]
    finally:
        assert daemon.end() == 0
    assert backends_of(model) == []


def test_one_that_hangs_in_its_end_is_not_taken_for_one_that_loads(tmp_path: Path, model: Path) -> None:
    entry = backend("glm", model, free_port(), "--simulate-ignore-sigterm")
    daemon = killed_at(AT_THE_END["it was asked to end"], tmp_path, {**WATCH, "backends": [entry]})
    first = ready(daemon)
    assert daemon.end() == -signal.SIGKILL
    daemon.again()
    try:
        daemon.until(lambda it: (view := view_of(it, "glm")) and view.pid not in (None, first), "another one")
        assert not is_running(first)
        assert len(backends_of(model)) == 1
    finally:
        daemon.end()


def test_what_a_backend_leaves_behind_goes_with_it(tmp_path: Path, model: Path) -> None:
    """A wrapper whose server is in a process group of its own, so that no signal to the wrapper's group reaches it."""
    port = free_port()
    entry = backend("glm", model, port)
    server = [*entry["supervise"]["command"]]
    wrapper = "import subprocess, sys; subprocess.Popen(sys.argv[1:], process_group=0).wait()"
    entry["supervise"]["command"] = [sys.executable, "-c", wrapper, *server]
    with daemon_process(tmp_path, {**WATCH, "backends": [entry]}) as daemon:
        daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "ready")
        record = backend_record.read("glm", f"{daemon.runtime}/backends")
        assert record is not None
        left = [pid for pid in backends_of(model) if pid != record.pid]
        assert len(left) == 1
        os.kill(record.pid, signal.SIGKILL)
        daemon.until(lambda _: any(event.name == "backend_recovered" for event in daemon.events()), "it is there again")
        assert not is_running(left[0])
        assert len(backends_of(model)) == 2
