"""`moetunectl tune` and a running daemon, over its real socket: they never write the same settings behind each other's back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fakes.fake_kernel import FakeKernel, usual_kernel
from fakes.own_settings import own_settings
from running import InProcess, daemon_process, in_process

from moetuned.cli import tune, tune_options

PRESSURE = "/proc/sys/vm/vfs_cache_pressure"
WATCHED = (
    PRESSURE,
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/min_free_kbytes",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)
Run = Callable[..., Result]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    fake = usual_kernel()
    for module in (tune, tune_options):
        monkeypatch.setattr(module, "RealFS", lambda _root: fake)
    return fake


@pytest.fixture
def daemon(tmp_path: Path, kernel: FakeKernel) -> Iterator[InProcess]:
    with in_process(tmp_path, {"tuning": {"profile": "moe-offload"}}, fs=kernel) as it:
        it.config_path.chmod(0o600)
        yield it


@pytest.fixture
def run(daemon: InProcess, tmp_path: Path) -> Run:
    """A command in a thread of its own, while this one is the daemon's."""

    def run(*arguments: str, code: int = 0, config: str | None = "") -> Result:
        given = [*arguments, "--root", str(tmp_path), "--journal", str(daemon.journal)]
        if arguments[0] not in ("rollback", "explain"):
            given += ["--config", config or str(daemon.config_path)]
        if arguments[0] in ("apply", "rollback"):
            given += ["--socket", str(tmp_path / "run/api.sock")]
        results: list[Result] = []
        thread = threading.Thread(target=lambda: results.append(CliRunner().invoke(tune.command, given)))
        thread.start()
        while thread.is_alive():
            daemon.turn(0.01)
        assert results[0].exit_code == code, results[0].output
        return results[0]

    return run


def data(result: Result) -> Any:
    return json.loads(result.stdout)


def test_given_back_and_applied_by_hand(run: Run, daemon: InProcess, kernel: FakeKernel) -> None:
    assert kernel.foreign_read(PRESSURE) == "50\n"
    given_back = data(run("rollback", "--json"))
    assert {view["state"] for view in given_back["tuning"]} == {"restored"}
    assert "until `moetunectl tune apply`" in given_back["notes"][0]
    assert kernel.foreign_read(PRESSURE) == "100\n"
    assert data(run("verify", "--json", code=1))["ok"] is False
    applied = data(run("apply", "--json"))
    assert applied["ok"] is True
    assert kernel.foreign_read(PRESSURE) == "50\n"
    assert data(run("verify", "--json"))["ok"] is True
    assert data(run("plan", "--json"))["steps"]


def test_another_wish_than_the_daemons_is_refused(
    run: Run, daemon: InProcess, kernel: FakeKernel, tmp_path: Path
) -> None:
    count = len(kernel.writes())
    assert "systemctl reload moetuned" in run("apply", "--profile", "observe", code=4).stderr
    other = tmp_path / "other.yaml"
    other.write_text("tuning: {profile: moe-offload}\n")
    other.chmod(0o600)
    assert f"not {other}" in run("apply", code=4, config=str(other)).stderr
    assert len(kernel.writes()) == count


def test_a_reload_ends_the_rest(run: Run, daemon: InProcess, kernel: FakeKernel) -> None:
    run("rollback")
    assert daemon.app.reload() is None
    assert kernel.foreign_read(PRESSURE) == "50\n"


@pytest.mark.kernel
def test_on_the_real_kernel_through_a_kill_and_restarts(tmp_path: Path) -> None:
    """Given back and applied by the command beside a daemon; somebody's own value outlives a SIGKILL and a stop."""
    with own_settings() as fs:
        before = {path: fs.read_text(path) for path in WATCHED}
        config = {"tuning": {"profile": "moe-offload"}}
        with daemon_process(tmp_path, config) as daemon:
            daemon.config_path.chmod(0o600)
            environ = {"MOETUNED_STATE_DIR": str(daemon.state), "MOETUNED_RUNTIME_DIR": str(daemon.runtime)}

            def command(*arguments: str, code: int = 0) -> str:
                full = [sys.executable, "-c", "from moetuned.cli.main import main; main()", "tune", *arguments]
                done = subprocess.run(full, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
                assert done.returncode == code, done.stdout + done.stderr
                return done.stdout + done.stderr

            daemon.until(lambda snapshot: snapshot.tuning, "the settings are applied")
            ours = {path: fs.read_text(path) for path in WATCHED}
            assert ours != before
            assert "until `moetunectl tune apply`" in command("rollback")
            assert {path: fs.read_text(path) for path in WATCHED} == before
            assert command("apply")
            assert {path: fs.read_text(path) for path in WATCHED} == ours

            fs.write_text(PRESSURE, "77")
            assert "drifted" in command("apply", code=1)
            daemon.end(signal.SIGKILL)
            daemon.again()
            seen = daemon.until(lambda snapshot: snapshot.tuning, "the settings are applied again")
            assert next(view for view in seen.tuning if view.name == "vm.vfs_cache_pressure").state == "yielded"
            assert fs.read_text(PRESSURE) == "77\n"
            assert daemon.end() == 0
            assert {path: fs.read_text(path) for path in WATCHED} == before | {PRESSURE: "77\n"}
        fs.write_text(PRESSURE, before[PRESSURE].strip())
