"""Every way of a real stand-in to end: its event, and how it comes back."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.own_cgroup import own_cgroup
from running import InProcess, backend, free_port, in_process, is_running

from moetuned.daemon import judging
from moetuned.daemon.settings import Settings, detector_settings
from moetuned.decide import supervision as sv
from moetuned.host.cgroup import LIMIT_FILE
from moetuned.host.kernel_log import own_pids, read_records

pytestmark = pytest.mark.backend
WATCH = {"watch": {"discover": False, "interval": "200ms"}, "warm": {"enabled": False}}
MIB = 1 << 20


def config(*backends: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**WATCH, "backends": list(backends), **more}


def look_often(daemon: InProcess) -> None:
    """What lets a backend not start is looked at each 5 s, which is too slow for a test."""
    state = daemon.app._roster.get("glm").supervisor.state
    quick = msgspec.structs.replace(state, timing=msgspec.structs.replace(state.timing, look_seconds=0.05))
    daemon.app._roster.get("glm").supervisor.state = quick
    if quick.stage is sv.Stage.WAITING:
        daemon.app._roster.get("glm").supervisor.state = msgspec.structs.replace(quick, retry_at=0.0)


def test_a_model_that_is_not_there_is_waited_for(tmp_path: Path, small_model: Path) -> None:
    model = tmp_path / "late.gguf"
    with in_process(tmp_path, config(backend("glm", model, free_port()))) as daemon:
        daemon.until(lambda _: daemon.event_names(), "it is told")
        assert daemon.event_names() == ["backend_model_missing"]
        assert f"its model {model} is not there; it is started once it can be read" in daemon.snapshot.events[0].message
        assert str(model) in daemon.view("glm").sentence
        look_often(daemon)
        ticks = daemon.snapshot.daemon.ticks
        daemon.until(
            lambda it: it.daemon.ticks > ticks + 2 * sv.Timing().breaker_exits, "it is looked at again and again"
        )
        assert daemon.event_names() == ["backend_model_missing"]
        model.symlink_to(small_model)
        daemon.until(daemon.phase_is("glm", "idle"), "it is started now")
        assert daemon.event_names() == ["backend_model_missing", "backend_recovered"]


def test_a_port_that_is_taken_is_waited_for(tmp_path: Path, small_model: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with in_process(tmp_path, config(backend("glm", small_model, port))) as daemon:
            daemon.until(lambda _: daemon.event_names(), "it is told")
            assert daemon.event_names() == ["backend_port_taken"]
            message = daemon.snapshot.events[0].message
            assert message.startswith(f"glm cannot be started: port {port} is taken by ")
            assert f"(pid {os.getpid()}" in message
            look_often(daemon)
            other.close()
            daemon.until(daemon.phase_is("glm", "idle"), "it is started now")
            assert daemon.event_names() == ["backend_port_taken", "backend_recovered"]


@pytest.mark.parametrize("cause", ["by hand", "relief", "return"])
def test_one_whose_model_is_gone_is_not_restarted_and_goes_on_answering(
    tmp_path: Path, small_model: Path, cause: str
) -> None:
    model, away = tmp_path / "own.gguf", tmp_path / "away.gguf"
    shutil.copy(small_model, model)
    with in_process(tmp_path, config(backend("glm", model, free_port()))) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        first = daemon.view("glm").pid
        model.rename(away)

        def restart() -> None:
            supervisor = daemon.app._roster.get("glm").supervisor
            plan = msgspec.structs.replace(supervisor.state.plan, context_length=2048)
            match cause:
                case "by hand":
                    supervisor.restart_by_hand(plan, 2048)
                case "relief":
                    supervisor.restart(plan, "memory is short")
                case _:
                    supervisor.give_back(plan, "memory is ample")

        restart()
        daemon.until(lambda _: daemon.event_names(), "it is told")
        # Also where it was to free memory: that is enough here, so that nothing would end relief_exhausted.
        assert daemon.event_names() == ["backend_not_restarted"]
        assert f"its model {model} is not there; it goes on as it is" in daemon.snapshot.events[0].message
        daemon.turn()
        daemon.until(daemon.phase_is("glm", "idle"), "it answers")
        assert (daemon.view("glm").pid, daemon.view("glm").supervision.stage) == (first, "ready")
        assert "its model" in (daemon.view("glm").supervision.restarts[-1].failed or "")
        away.rename(model)
        restart()
        daemon.until(lambda _: "backend_restarted" in daemon.event_names(), "it is restarted now")
        assert daemon.view("glm").pid != first


def test_a_model_that_goes_while_it_runs_is_why_it_does_not_come_back(tmp_path: Path, small_model: Path) -> None:
    model = tmp_path / "own.gguf"
    shutil.copy(small_model, model)
    with in_process(tmp_path, config(backend("glm", model, free_port()))) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        model.unlink()
        os.kill(daemon.view("glm").pid, signal.SIGINT)
        daemon.until(lambda _: daemon.event_names(), "its end is told")
        assert daemon.event_names() == ["backend_model_missing"]
        assert "is not there" in daemon.snapshot.events[0].message
        assert daemon.view("glm").pid is None


TAKES_MEMORY = (
    "import sys; print('x', flush=True); held = bytearray(int(sys.argv[1])); held[::4096] = b'x' * len(held[::4096])"
)


@pytest.mark.kernel
@pytest.mark.parametrize("log", [True, False])
def test_the_work_of_the_oom_killer_is_known(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch, log: bool
) -> None:
    """By the kernel log, and without it (as in a container) by the counter of its cgroup."""
    if log and (read_records() is None or not own_pids()):
        pytest.skip("the kernel log cannot be read here")
    if not log:
        monkeypatch.setattr("moetuned.daemon.examining.oom_kills_since", lambda *_: None)
    with own_cgroup() as cgroup:
        entry = backend("glm", small_model, free_port(), cgroup=cgroup)
        with in_process(tmp_path, config(entry, relief={"before_start": "off"})) as daemon:
            daemon.until(daemon.phase_is("glm", "idle"), "ready")
            daemon.until(lambda _: daemon.view("glm").cgroup == cgroup, "its cgroup is known")
            pid = daemon.view("glm").pid
            Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
            squeeze(cgroup)
            daemon.until(lambda _: "backend_recovered" in daemon.event_names(), "it comes back")
            told = [event for event in daemon.snapshot.events if event.name.value.startswith("backend")]
            assert [event.name.value for event in told] == ["backend_oom_killed", "backend_recovered"]
            assert "was ended by the kernel's OOM killer" in told[0].message
            assert ("at its limit" in told[0].message) is log
            assert not is_running(pid)


def squeeze(cgroup: str) -> None:
    """Have a process in the cgroup need more than there is, until the kernel ends the backend for it."""
    limit = Path(cgroup, next(name for name in LIMIT_FILE.values() if Path(cgroup, name).exists()))
    before = limit.read_text()
    limit.write_text(str(160 * MIB))
    join = ["/bin/sh", "-c", 'echo $$ > "$1"/cgroup.procs; shift; exec "$@"', "sh", cgroup]
    hog = subprocess.Popen([*join, sys.executable, "-c", TAKES_MEMORY, str(150 * MIB)], stdout=subprocess.DEVNULL)
    hog.wait(60)
    limit.write_text(before)


def test_one_that_hangs_is_ended_and_started_again(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With holds of seconds instead of minutes."""

    def quick(settings: Settings) -> Any:
        return msgspec.structs.replace(detector_settings(settings), hung_hold_seconds=1.5)

    monkeypatch.setattr(judging, "detector_settings", quick)
    port = free_port()
    entry = backend("glm", small_model, port, "--simulate-hang-after", "3")
    # Asked five times a second, a server on a slow machine does nothing else and is not still.
    seldom = {
        **config(entry, relief={"mode": "act"}),
        "watch": {"discover": False, "interval": "1s", "idle_interval": "1s"},
    }
    with in_process(tmp_path, seldom) as daemon:
        daemon.app._settings = msgspec.structs.replace(daemon.app._settings, restart_hung_seconds=2.0)
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        first = daemon.view("glm").pid
        asking = subprocess.Popen(
            [sys.executable, "-m", "moetuned.simulator", "ask", f"http://127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            daemon.until(lambda _: "backend_recovered" in daemon.event_names(), "it is there again")
        finally:
            asking.kill()
            asking.wait()
        assert daemon.event_names() == ["backend_hung", "backend_recovered"]
        assert daemon.view("glm").pid != first
        assert not is_running(first)
