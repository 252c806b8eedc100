"""Starting, taking over and ending children."""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fakes.own_cgroup import memory_stat, own_cgroup

from moetuned.host import program_search, spawn
from moetuned.host.cgroup import processes_in
from moetuned.host.processes import ProcessIdentity, command_line, identify
from moetuned.host.spawn import Exit, StartError, SupervisedProcess
from moetuned.schema.supervise import ResourceLimits

ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/"}


@pytest.fixture
def started() -> Iterator[list[SupervisedProcess]]:
    processes: list[SupervisedProcess] = []
    yield processes
    for process in processes:
        process.kill()
        if process.fileno() >= 0:
            wait_for_end(process)


def wait_for_end(process: SupervisedProcess) -> Exit:
    assert select.select([process], [], [], 20)[0]
    how = process.poll()
    assert how is not None
    return how


def run(command: Sequence[str], log: Path, started: list[SupervisedProcess], **more: object) -> SupervisedProcess:
    process = spawn.start(command, environment=ENVIRONMENT, log_path=str(log), **more)  # type: ignore[arg-type]
    started.append(process)
    return process


def test_a_child_runs_in_its_own_session_with_its_words_untouched(
    tmp_path: Path, started: list[SupervisedProcess]
) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    script = "import os, sys; print(sys.argv[1:], os.getcwd(), os.getsid(0) == os.getpid(), sys.stdin.read())"
    words = ["$(touch /tmp/x)", "a b", "; exit 3", ""]
    process = run([sys.executable, "-c", script, *words], log, started, directory=str(tmp_path))
    assert wait_for_end(process) == Exit(0)
    assert log.read_text() == f"before\n{words} {tmp_path} True \n"
    assert stat.S_IMODE(log.stat().st_mode) & 0o007 == stat.S_IMODE(log.stat().st_mode) & 0o004
    assert process.poll() == Exit(0)
    assert not process.adopted


def test_a_child_can_be_ended_and_says_how(tmp_path: Path, started: list[SupervisedProcess]) -> None:
    process = run(["sleep", "60"], tmp_path / "log", started)
    assert process.poll() is None
    process.terminate()
    how = wait_for_end(process)
    assert (how, str(how)) == (Exit(-signal.SIGTERM), "was ended by SIGTERM")
    assert process.fileno() == -1
    process.kill()


def test_the_signal_comes_once(
    tmp_path: Path, started: list[SupervisedProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = run(["sleep", "60"], tmp_path / "log", started)
    sent: list[tuple[int, int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda group, number: sent.append((group, number)))
        patch.setattr(signal, "pidfd_send_signal", lambda descriptor, number: sent.append((descriptor, number)))
        process.terminate()
    assert sent == [(process.identity.pid, signal.SIGTERM), (process.identity.pid, signal.SIGCONT)]


def test_paused_it_stands_still_and_ends_all_the_same(tmp_path: Path, started: list[SupervisedProcess]) -> None:
    def state() -> str:
        return Path(f"/proc/{process.identity.pid}/stat").read_text().rpartition(")")[2].split()[0]

    process = run(["sleep", "60"], tmp_path / "log", started)
    process.pause()
    while state() != "T":
        pass
    process.resume()
    while state() == "T":
        pass
    process.pause()
    process.terminate()
    assert select.select([process.fileno()], [], [], 60)[0]
    assert process.poll() == Exit(-signal.SIGTERM)


def test_its_whole_process_group_ends_with_it(tmp_path: Path, started: list[SupervisedProcess]) -> None:
    log = tmp_path / "log"
    process = run(["sh", "-c", "sleep 60 & echo $!; read line < /dev/zero; sleep 60 & wait"], log, started)
    while not log.read_text().strip():
        assert process.poll() is None
    grandchild = identify(int(log.read_text()))
    assert grandchild is not None
    handle = os.pidfd_open(grandchild.pid)
    process.kill()
    wait_for_end(process)
    assert select.select([handle], [], [], 20)[0]
    os.close(handle)


def test_a_later_daemon_takes_the_child_over(tmp_path: Path, started: list[SupervisedProcess]) -> None:
    first = run(["sleep", "60"], tmp_path / "log", started)
    second = spawn.adopt(first.identity)
    assert second is not None
    assert second.adopted
    assert second.poll() is None
    second.terminate()
    how = wait_for_end(second)
    assert (how, str(how)) == (Exit(None), "ended")
    assert spawn.adopt(first.identity) is None
    assert spawn.adopt(ProcessIdentity(os.getpid(), 1)) is None


def test_it_outlives_the_daemon_that_started_it(tmp_path: Path) -> None:
    script = (
        "import os, sys; from moetuned.host import spawn\n"
        "p = spawn.start(['sleep', '60'], environment=dict(os.environ), log_path=sys.argv[1])\n"
        "print(p.identity.pid, p.identity.start_ticks, flush=True); os.kill(os.getpid(), 9)"
    )
    daemon = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "log")], capture_output=True, text=True, check=False
    )
    assert daemon.returncode == -signal.SIGKILL, daemon.stderr
    pid, start_ticks = map(int, daemon.stdout.split())
    process = spawn.adopt(ProcessIdentity(pid, start_ticks))
    assert process is not None
    process.kill()
    assert wait_for_end(process) == Exit(None)


def test_letting_go_does_not_end_it(tmp_path: Path) -> None:
    process = spawn.start(["sleep", "60"], environment=ENVIRONMENT, log_path=str(tmp_path / "log"))
    identity = process.identity
    process.close()
    again = spawn.adopt(identity)
    assert again is not None
    again.kill()
    wait_for_end(again)
    os.waitpid(identity.pid, 0)


def test_blocked_signals_are_not_inherited(tmp_path: Path, started: list[SupervisedProcess]) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        process = run(["sleep", "60"], tmp_path / "log", started)
        assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    process.terminate()
    assert wait_for_end(process) == Exit(-signal.SIGTERM)


@pytest.mark.parametrize(
    ("command", "more", "why"),
    [
        (["no-such-program-here"], {}, "no program no-such-program-here on PATH"),
        (["/no/such/program"], {}, "no program /no/such/program"),
        (["/etc/passwd"], {}, "/etc/passwd is not executable"),
        (["/tmp"], {}, "/tmp is not executable"),
        (["sleep", "60"], {"directory": "/no/such/directory"}, "/no/such/directory"),
        (["sleep", "60"], {"log_path": "/no/such/directory/log"}, "cannot open the log /no/such/directory/log"),
        (["sleep", "60"], {"cgroup_directory": "/tmp"}, "/tmp is no directory under /sys/fs/cgroup"),
        (["sleep", "a\0b"], {}, "null byte"),
    ],
)
def test_what_cannot_start_says_why(command: list[str], more: dict[str, str], why: str) -> None:
    with pytest.raises(StartError, match=why):
        spawn.start(command, environment=ENVIRONMENT, **more)  # type: ignore[arg-type]


def test_a_log_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "target")
    with pytest.raises(StartError, match="log"):
        spawn.start(["true"], environment=ENVIRONMENT, log_path=str(tmp_path / "log"))
    assert not (tmp_path / "target").exists()


def test_the_childs_environment_has_nothing_of_the_service_manager() -> None:
    base = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "LISTEN_FDS": "1", "A": "1", "B": "2"}
    assert spawn.child_environment(base, {"B": "3"}) == {"A": "1", "B": "3"}


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (Exit(1), "exited with code 1"),
        (Exit(125), "cgroup"),
        (Exit(-9), "was ended by SIGKILL"),
        (Exit(-99), "signal 99"),
    ],
)
def test_how_it_ended(how: Exit, text: str) -> None:
    assert text in str(how)


def test_the_boot_has_an_id() -> None:
    assert len(spawn.boot_id()) == 36
    assert spawn.boot_id() == spawn.boot_id()


def test_its_limits_are_set_before_it_runs(tmp_path: Path, started: list[SupervisedProcess]) -> None:
    log = tmp_path / "log"
    script = "import resource as r; print([r.getrlimit(n) for n in (r.RLIMIT_NOFILE, r.RLIMIT_CORE, r.RLIMIT_MEMLOCK)])"
    limits = ResourceLimits(open_files=256, core=0, memlock="64KiB")
    process = run([sys.executable, "-c", script], log, started, limits=limits)
    assert wait_for_end(process) == Exit(0)
    assert log.read_text() == "[(256, 256), (0, 0), (65536, 65536)]\n"


def test_without_prlimit_limits_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_search, "DIRECTORIES", (str(tmp_path),))
    with pytest.raises(StartError, match="prlimit"):
        spawn.start([sys.executable], environment={}, limits=ResourceLimits(core="unlimited"))


@pytest.mark.kernel
def test_the_cgroup_is_joined_before_the_program_runs(tmp_path: Path, started: list[SupervisedProcess]) -> None:
    script = "import sys; x = bytearray(64 << 20); print(sys.argv[1:], flush=True); sys.stdin.read(); input()"
    with own_cgroup() as directory:
        log = tmp_path / "log"
        words = [sys.executable, "-c", script, "'; echo hurt", "$1 b"]
        process = run(
            [*words[:2], "import time\n" + script.replace("input()", "time.sleep(60)"), *words[3:]],
            log,
            started,
            cgroup_directory=directory,
        )
        while not log.read_text():
            assert process.poll() is None
        assert log.read_text() == "[\"'; echo hurt\", '$1 b']\n"
        assert processes_in(directory) == [process.identity.pid]
        assert (command_line(process.identity.pid) or ())[0] == sys.executable
        name = "anon" if os.path.exists(f"{directory}/memory.current") else "rss"
        assert memory_stat(directory, name) > 64 << 20
        process.kill()
        wait_for_end(process)


@pytest.mark.kernel
def test_a_protected_daemons_child_is_not_protected(tmp_path: Path) -> None:
    script = (
        "import os, sys; from moetuned.host import spawn\n"
        "open('/proc/self/oom_score_adj', 'w').write('-500'); os.nice(-5)\n"
        "p = spawn.start(['sleep', '60'], environment=dict(os.environ), log_path=sys.argv[1])\n"
        "print(open(f'/proc/{p.identity.pid}/oom_score_adj').read(), os.getpriority(os.PRIO_PROCESS, p.identity.pid))\n"
        "p.kill(); os.waitpid(p.identity.pid, 0)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "log")], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["0", "0"]


def test_what_may_not_be_signalled_is_left_alone(
    tmp_path: Path,
    started: list[SupervisedProcess],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A daemon without root follows a unit of root's."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    process = run(["sleep", "60"], tmp_path / "log", started)
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", refuse)
        patch.setattr(signal, "pidfd_send_signal", refuse)
        process.kill()
    assert "belongs to another user and gets no SIGKILL" in caplog.text
    assert process.poll() is None
