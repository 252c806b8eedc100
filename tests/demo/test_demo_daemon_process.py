"""The daemon under show, played by small programs: started, started again when it is killed, ended in order."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moetuned.api.errors import DaemonUnreachable
from moetuned.demo import daemon_process
from moetuned.demo.daemon_process import MOST_RESTARTS, DaemonProcess

READY = "import signal, sys; print('ready', flush=True); "
ORDERLY = f"import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); {READY}signal.pause()"
UNCLEAN = ORDERLY.replace("sys.exit(0)", "sys.exit(7)")
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY}signal.pause()"
FAILING = "import sys; print('line 1'); print('cannot listen'); sys.exit(2)"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    made = DaemonProcess("no-config", str(tmp_path), str(tmp_path), str(tmp_path / "log"))
    yield made
    if made._child is not None:
        made._child.kill()
        made._child.wait()


def play(daemon: DaemonProcess, program: str) -> int:
    """Start it with this program in the daemon's place; its pid."""
    daemon._command = [sys.executable, "-c", program]
    daemon.start()
    assert daemon._child is not None
    return daemon._child.pid


def wait_ready(daemon: DaemonProcess, times: int = 1) -> None:
    """The limit only ends a test that would otherwise hang."""
    limit = time.monotonic() + 20
    while daemon.log_end().count("ready") < times:
        assert time.monotonic() < limit
        time.sleep(0.01)


def ended(daemon: DaemonProcess) -> None:
    assert daemon._child is not None
    daemon._child.wait(20)


def test_it_runs_the_real_daemon_with_the_config_and_directories(daemon: DaemonProcess, tmp_path: Path) -> None:
    assert daemon._command[:3] == [sys.executable, "-m", "moetuned.daemon"]
    assert daemon._command[3:6] == ["run", "--config", "no-config"]
    daemon.start()
    ended(daemon)
    with pytest.raises(ChildProcessError, match=r"the daemon ended with code [1-9]") as caught:
        daemon.keep_alive()
    assert "no-config" in str(caught.value), "the end of the log says what was wrong"


def test_it_is_ended_in_order(daemon: DaemonProcess) -> None:
    pid = play(daemon, ORDERLY)
    wait_ready(daemon)
    assert os.getsid(pid) == pid, "Ctrl-C is for the demo"
    assert not daemon.keep_alive()
    assert daemon.stop() == 0
    assert daemon.stop() == 0, "once more is no mistake"


def test_its_own_code_is_told(daemon: DaemonProcess) -> None:
    play(daemon, UNCLEAN)
    wait_ready(daemon)
    assert daemon.stop() == 7


def test_one_that_does_not_end_is_killed(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_process, "STOP_SECONDS", 0.0)
    play(daemon, DEAF)
    wait_ready(daemon)
    assert daemon.stop() is None


def test_one_that_never_started_is_stopped_already(daemon: DaemonProcess) -> None:
    assert not daemon.keep_alive()
    assert daemon.stop() == 0


def test_one_that_was_killed_is_started_again_but_not_for_ever(daemon: DaemonProcess) -> None:
    play(daemon, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    for _ in range(MOST_RESTARTS):
        ended(daemon)
        assert daemon.keep_alive()
    ended(daemon)
    with pytest.raises(ChildProcessError, match="ended with code -9"):
        daemon.keep_alive()
    assert daemon.killed == MOST_RESTARTS


def test_one_that_ends_by_itself_is_an_error_with_the_end_of_its_log(daemon: DaemonProcess) -> None:
    play(daemon, FAILING)
    ended(daemon)
    with pytest.raises(ChildProcessError, match=r"ended with code 2; its log ends:\nline 1\ncannot listen\n"):
        daemon.keep_alive()
    assert daemon.killed == 0
    assert daemon.log_end(1) == "cannot listen\n"


def test_its_log_grows_over_restarts(daemon: DaemonProcess) -> None:
    for number in (1, 2):
        play(daemon, ORDERLY)
        wait_ready(daemon, number)
        daemon.stop()
    assert daemon.log_end() == "ready\nready\n"


def test_no_snapshot_while_nobody_answers(daemon: DaemonProcess) -> None:
    assert daemon.snapshot() is None
    with pytest.raises(DaemonUnreachable):
        daemon.client.status()
