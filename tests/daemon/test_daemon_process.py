"""`moetuned run` as a process of its own: without a config, supervising, killed, and under a service manager."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import backend, daemon_process, free_port, is_running, stand_in, view_of

from moetuned.cli import main
from moetuned.host.fs import RealFS
from moetuned.state import backend_record

pytestmark = pytest.mark.backend
FS = RealFS()
PRESSURE = "/proc/sys/vm/vfs_cache_pressure"
SYSCTLS = ("vm.overcommit_memory", "vm.dirty_ratio", "vm.dirty_background_ratio", "vm.vfs_cache_pressure")
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
WATCH = {"watch": {"discover": False, "interval": "200ms"}, "warm": {"enabled": False}}


def settings() -> dict[str, str]:
    paths = [f"/proc/sys/{name.replace('.', '/')}" for name in SYSCTLS]
    return {path: FS.read_text(path) for path in (*paths, THP) if FS.exists(path)}


def one_setting_changed() -> dict[str, Any]:
    """A `tuning` that asks for what is there, but for vm.vfs_cache_pressure, which harms nobody."""
    now = {name: FS.read_text(f"/proc/sys/{name.replace('.', '/')}").strip() for name in SYSCTLS}
    if "0" in (now["vm.dirty_ratio"], now["vm.dirty_background_ratio"]):
        pytest.skip("the machine sets vm.dirty_bytes instead of vm.dirty_ratio")
    wanted = {name: int(value) for name, value in now.items()}
    wanted["vm.vfs_cache_pressure"] += 7
    tuning: dict[str, Any] = {"profile": "moe-offload", "sysctl": wanted}
    if FS.exists(THP):
        tuning["thp"] = re.search(r"\[(\w+)\]", FS.read_text(THP))[1]
    return tuning


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to change settings")


@pytest.fixture
def running(small_model: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A stand-in that somebody else started."""
    port = free_port()
    command = [word.format(context=4096, prompt_cache_mib=0) for word in stand_in(small_model, port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield process, port
    process.kill()
    process.wait()


def test_with_nothing_configured_it_finds_what_runs_and_changes_nothing(
    tmp_path: Path, small_model: Path, running: tuple[subprocess.Popen[bytes], int]
) -> None:
    process, port = running
    before = settings()
    name = f"simulator-{port}"
    with daemon_process(tmp_path, {}) as daemon:
        snapshot = daemon.until(lambda it: (view := view_of(it, name)) and view.verdict.phase == "idle", "its verdict")
        view = view_of(snapshot, name)
        assert (view.pid, view.discovered, view.supervised, view.context.now) == (process.pid, True, False, 4096)
        assert view.model_path == str(small_model)
        assert view.verdict.memory == "ok"
        assert view.sentence.startswith("is idle")
        assert (snapshot.mode, snapshot.profile, snapshot.tuning) == ("observe", "observe", ())
        ticks = snapshot.daemon.ticks
        daemon.until(lambda it: it.daemon.ticks >= ticks + 3, "some more ticks")
        assert settings() == before
        assert daemon.end() == 0
    assert settings() == before
    assert process.poll() is None
    # Events are kept where there are any: on a busy machine something may have happened to it.
    assert not daemon.state.exists() or [path.name for path in daemon.state.iterdir()] == ["events.jsonl"]
    assert sorted(each.name for each in daemon.runtime.iterdir()) == []
    assert "settings are left alone, relief only says what it would do" in daemon.log


def test_one_without_any_config_file_at_all_starts(tmp_path: Path) -> None:
    with daemon_process(tmp_path, {}) as daemon:
        daemon.config_path.write_text("")
        daemon.until(lambda it: it.daemon.ticks, "a tick")
        assert daemon.end(signal.SIGINT) == 0


@pytest.mark.kernel
def test_a_whole_life(tmp_path: Path, small_model: Path, root: None) -> None:
    before = settings()
    tuning = one_setting_changed()
    config = {**WATCH, "tuning": tuning, "backends": [backend("glm", small_model, free_port())]}
    with daemon_process(tmp_path, config) as daemon:
        snapshot = daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "ready")
        view = view_of(snapshot, "glm")
        assert FS.read_text(PRESSURE).strip() == str(tuning["sysctl"]["vm.vfs_cache_pressure"])
        assert {each.name: each.state for each in snapshot.tuning}["vm.vfs_cache_pressure"] == "applied"
        assert (view.supervised, view.context.now, view.prompt_cache_mib) == (True, 8192, 64)
        snapshot = daemon.until(lambda it: view_of(it, "glm").model_bytes, "its model is known")
        assert view_of(snapshot, "glm").layout.experts > 0
        assert backend_record.read("glm", f"{daemon.runtime}/backends").pid == view.pid
        assert daemon.end() == 0
    assert settings() == before
    assert not is_running(view.pid)
    assert list(daemon.state.glob("*.jsonl")) == []
    assert list((daemon.runtime / "backends").iterdir()) == []
    assert_readable(daemon.log)


def assert_readable(log: str) -> None:
    """Sentences for a person: no value that is none, no object, no traceback."""
    for line in log.splitlines():
        assert not re.search(r"None|Traceback|<[a-z_.]+ object|\{|Struct", line), line
    for expected in ("started as process", "ready, with", "stopping", "asking process", "stopped"):
        assert expected in log


@pytest.mark.kernel
def test_killed_it_loses_nothing(tmp_path: Path, small_model: Path, root: None) -> None:
    before = settings()
    config = {**WATCH, "tuning": one_setting_changed(), "backends": [backend("glm", small_model, free_port())]}
    with daemon_process(tmp_path, config) as daemon:
        snapshot = daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "ready")
        pid = view_of(snapshot, "glm").pid
        assert daemon.end(signal.SIGKILL) == -signal.SIGKILL
        assert is_running(pid)
        daemon.again()
        snapshot = daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "found again")
        assert view_of(snapshot, "glm").pid == pid
        assert len(processes_with(str(small_model))) == 1
        original = {each.name: each.original for each in snapshot.tuning}["vm.vfs_cache_pressure"]
        assert original == before[PRESSURE].strip()
        assert daemon.end() == 0
    assert settings() == before
    assert not is_running(pid)


@pytest.mark.kernel
def test_killed_its_settings_can_be_given_back_by_hand(tmp_path: Path, root: None) -> None:
    before = settings()
    with daemon_process(tmp_path, {**WATCH, "tuning": one_setting_changed()}) as daemon:
        daemon.until(lambda it: it.daemon.ticks, "a tick")
        assert settings() != before
        daemon.end(signal.SIGKILL)
        environ = {**os.environ, "MOETUNED_STATE_DIR": str(daemon.state)}
        command = [sys.executable, "-c", "from moetuned.cli.main import main; main()", "tune", "rollback"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert settings() == before


def processes_with(word: str) -> list[int]:
    """Processes that run and have this in their command line."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and word in Path(f"/proc/{name}/cmdline").read_text() and is_running(int(name)):
                found.append(int(name))
        except OSError:
            continue
    return found


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """A service manager's end of NOTIFY_SOCKET: its address, and what it was told."""
    path = str(tmp_path / "notify")
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)

        def listen() -> None:
            while (message := listener.recv(65536)) != b"END":
                told.append(message.decode())

        thread = threading.Thread(target=listen)
        thread.start()
        yield path, told
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ending:
            ending.sendto(b"END", path)
        thread.join()


def test_it_speaks_with_the_service_manager(tmp_path: Path, small_model: Path, manager: tuple[str, list[str]]) -> None:
    path, told = manager
    config = {**WATCH, "backends": [backend("glm", small_model, free_port())]}
    environ = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000"}
    with daemon_process(tmp_path, config, environ=environ) as daemon:
        snapshot = daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "ready")
        assert_child_has_none(view_of(snapshot, "glm").pid)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.until(lambda _: any("RELOADING=1" in each for each in told), "it says that it reloads")
        daemon.until(lambda _: told[-1].startswith("WATCHDOG=1"), "ticks go on")
        assert daemon.end() == 0
    kinds = [each.split("\n")[0].split("=")[0] for each in told]
    ready, reloading, stopping = kinds.index("READY"), kinds.index("RELOADING"), kinds.index("STOPPING")
    assert ready < reloading < stopping
    assert kinds[reloading + 1] == "READY"
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", told[reloading])
    assert "STATUS=glm is" in told[ready]
    assert "WATCHDOG" in kinds[ready:stopping]
    assert "STATUS=rolling back settings and ending supervised backends" in told[stopping]


def assert_child_has_none(pid: int) -> None:
    environment = Path(f"/proc/{pid}/environ").read_text()
    assert "NOTIFY_SOCKET" not in environment
    assert "WATCHDOG" not in environment


def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    with daemon_process(tmp_path, WATCH) as daemon:
        daemon.until(lambda it: it.daemon.ticks, "a tick")
        second = subprocess.run(
            [*daemon.process.args], capture_output=True, text=True, timeout=60, check=False
        )  # fmt: skip
        assert second.returncode == 4
        assert "moetuned: " in second.stderr
        assert "Traceback" not in second.stderr


def test_a_bad_config_is_refused_with_file_and_key(tmp_path: Path) -> None:
    with daemon_process(tmp_path, {"relief": {"mode": "sometimes"}}) as daemon:
        assert daemon.process.wait(60) == 2
    assert str(daemon.config_path) in daemon.log
    assert "relief.mode" in daemon.log
    assert "Traceback" not in daemon.log


def test_restarted_paused_and_resumed_by_hand(
    tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = backend("glm", small_model, free_port())
    with daemon_process(tmp_path, {**WATCH, "backends": [entry]}) as daemon:
        first = view_of(daemon.until(lambda it: view_of(it, "glm").verdict.phase == "idle", "ready"), "glm")
        daemon.until(lambda it: view_of(it, "glm").launch.command, "its command line is known")
        own = ["--socket", str(daemon.runtime / "api.sock")]
        assert main.run(["backend", "restart", "glm", "--context", "2048", "--yes", *own]) == 0
        assert "glm is healthy again with a context of 2048 tokens" in capsys.readouterr().out
        view = view_of(daemon.client.status(), "glm")
        assert view.pid != first.pid
        assert not is_running(first.pid)
        assert (view.context.now, view.context.wanted, view.launch.context_by_hand) == (2048, 2048, True)
        assert view.supervision.restarts_by_cause == {"by_hand": 1}
        assert main.run(["backend", "restart", "glm", "--context", "512", *own]) == 1
        assert "fewer than the 1024" in capsys.readouterr().err
        assert main.run(["backend", "pause", "glm", *own]) == 0
        assert view_of(daemon.client.status(), "glm").state == "paused"
        assert RealFS().read_text(f"/proc/{view.pid}/stat").rpartition(")")[2].split()[0] == "T"
        assert main.run(["backend", "resume", "glm", *own]) == 0
        daemon.until(lambda it: view_of(it, "glm").state == "idle", "it goes on")
        assert main.run(["backend", "pause", "glm", *own]) == 0
        assert main.run(["backend", "list", *own]) == 0
        assert "paused" in capsys.readouterr().out
        daemon.process.kill()
        daemon.process.wait()
        daemon.again()
        daemon.until(lambda it: view_of(it, "glm").state == "paused", "another daemon sees that it is paused")
        assert main.run(["backend", "resume", "glm", *own]) == 0
        daemon.until(lambda it: view_of(it, "glm").state == "idle", "it goes on")
        assert main.run(["backend", "pause", "glm", *own]) == 0
        assert daemon.end() == 0
        assert not is_running(view.pid), "also a paused one ends with its daemon"
