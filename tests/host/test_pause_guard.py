"""A process that was stopped goes on: when told, after its time, and when the daemon is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from moetuned.host import pause_guard
from moetuned.host.pause_guard import PauseGuard
from moetuned.host.processes import ProcessIdentity, identify
from moetuned.parse.process import parse_process

LONG = 60.0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, stopped."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    os.killpg(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    yield process
    process.kill()
    process.wait()


def identity(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = identify(process.pid)
    assert found is not None
    return found


def is_continued(process: subprocess.Popen[bytes]) -> bool:
    """Waits until the kernel says so."""
    return os.WIFCONTINUED(os.waitpid(process.pid, os.WCONTINUED)[1])


def state(pid: int) -> str | None:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        found = parse_process(pid, file.read(), None, None)
    return None if found is None else found.state


def test_it_goes_on_when_told(child: subprocess.Popen[bytes]) -> None:
    guard = PauseGuard(identity(child), LONG)
    assert not guard.ended
    guard.release()
    assert is_continued(child)
    guard._child.wait(20)
    assert guard.ended


def test_it_goes_on_after_its_time(child: subprocess.Popen[bytes]) -> None:
    guard = PauseGuard(identity(child), 0.1)
    assert is_continued(child)
    guard.release()
    guard._child.wait(20)


def test_it_goes_on_when_the_daemon_is_killed(child: subprocess.Popen[bytes]) -> None:
    script = (
        "import sys; from moetuned.host.pause_guard import PauseGuard; from moetuned.host.processes import identify\n"
        "guard = PauseGuard(identify(int(sys.argv[1])), 60.0); print('held', flush=True); sys.stdin.read()"
    )
    daemon = subprocess.Popen(
        [sys.executable, "-c", script, str(child.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == b"held\n"
    assert state(child.pid) == "T"
    daemon.kill()
    daemon.communicate()
    assert is_continued(child)


def test_all_of_several_go_on_when_the_daemon_is_killed(child: subprocess.Popen[bytes]) -> None:
    """The second is in a session of its own, which no signal to the group of the first reaches."""
    second = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    script = (
        "import os, signal, sys; from moetuned.host.pause_guard import PauseGuard; from moetuned.host.processes import identify\n"
        "first, second = (identify(int(each)) for each in sys.argv[1:])\n"
        "guard = PauseGuard(first, 60.0); guard.also(second); os.kill(second.pid, signal.SIGSTOP)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    try:
        daemon = subprocess.Popen([sys.executable, "-c", script, str(child.pid), str(second.pid)])
        os.waitpid(second.pid, os.WUNTRACED)
        assert daemon.wait() == -signal.SIGKILL
        assert is_continued(child)
        assert is_continued(second)
    finally:
        second.kill()
        second.wait()


def test_it_takes_no_more_once_it_was_released(child: subprocess.Popen[bytes]) -> None:
    guard = PauseGuard(identity(child), 0.1)
    guard._child.wait(20)
    with pytest.raises(BrokenPipeError):
        guard.also(identity(child))
    guard.release()
    with pytest.raises(BrokenPipeError):
        guard.also(identity(child))


def test_another_process_of_the_same_pid_is_left_alone(child: subprocess.Popen[bytes]) -> None:
    real = identity(child)
    guard = PauseGuard(ProcessIdentity(real.pid, real.start_ticks + 1), 0.1)
    guard._child.wait(20)
    assert state(child.pid) == "T"
    guard.release()


def test_the_name_of_a_process_says_nothing_to_the_script() -> None:
    """A name with blanks and brackets, as /proc/PID/stat shows it, moves no field."""
    script = (
        "import signal; open('/proc/self/comm', 'w').write(') S 1 * $('); print('named', flush=True); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        guard = PauseGuard(identity(process), LONG)
        guard.release()
        assert is_continued(process)
        guard._child.wait(20)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("missing", ["sh", "timeout"])
def test_without_the_programs_nothing_may_be_stopped(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause_guard, "find_program", lambda name: None if name == missing else f"/bin/{name}")
    with pytest.raises(OSError, match=missing):
        PauseGuard(ProcessIdentity(1 << 30, 1), 1.0)


def test_it_stays_stopped_when_the_guard_is_not_wanted_any_more(child: subprocess.Popen[bytes]) -> None:
    guard = PauseGuard(identity(child), LONG)
    guard.cancel()
    assert guard.ended
    guard.cancel()
    assert state(child.pid) == "T"
