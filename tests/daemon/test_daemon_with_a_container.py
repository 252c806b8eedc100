"""The daemon with a backend in a container of a real engine: found behind its first process, made anew with a shorter context.

The server ignores SIGTERM, so it is killed; the one that is started after it is not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.real_engine import RealEngine, real_engine
from running import free_port, in_process, is_running, stand_in

import moetuned
from moetuned.decide.supervision import LaunchPlan
from moetuned.host import container as host_container
from moetuned.host.engine_cli import asking

pytestmark = [pytest.mark.backend, pytest.mark.kernel]
NAME = f"moetuned-daemon-{os.getpid()}"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    with real_engine("podman", tmp_path_factory.mktemp("podman")) as found:
        yield found
        for name in (NAME, f"{NAME}-moetuned-next", f"{NAME}-moetuned-old", f"{NAME}-before-moetuned"):
            found.run("rm", "--force", name, check=False)


@pytest.fixture
def reached(engine: RealEngine, monkeypatch: pytest.MonkeyPatch) -> RealEngine:
    """The daemon's words reach this engine, whose storage is the test's own."""

    class Reached(host_container.Container):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, asking(engine.command))

    monkeypatch.setattr(host_container, "Container", Reached)
    return engine


FRONTS = {
    "none": [],
    "shell": ["/bin/sh", "-c", '"$@"; exit $?', "sh"],
    # As docker's --init: the server has a process group of its own.
    "init": ["/bin/bash", "-c", 'set -m; "$@" & wait', "bash"],
    "session": ["/bin/sh", "-c", 'setsid -w "$@"; exit $?', "sh"],
}


def _run(engine: RealEngine, model: Path, *further: Path) -> list[str]:
    """What comes after `podman run --detach --name NAME`, up to the image: the stand-in can be run in it."""
    # What an editable installation points to need not be on the path.
    project = str(Path(moetuned.__file__).parents[1])
    paths = [path for path in (*sys.path, sys.prefix, sys.base_prefix, project) if path and os.path.isdir(path)]
    mounts = {path for path in (*paths, str(model.parent), *map(str, further)) if not path.startswith("/usr")}
    options = [part for path in sorted(mounts) for part in ("-v", f"{path}:{path}:ro")]
    environment = ["-e", f"PYTHONPATH={':'.join(path for path in sys.path if path)}"]
    return [*engine.options, *options, *environment, engine.image]


def _config(model: Path, port: int, run: list[str]) -> dict[str, Any]:
    entry = {
        "name": "glm",
        "model": str(model),
        "url": f"http://127.0.0.1:{port}",
        "context": {"preferred": 24576, "minimum": 1024},
        "supervise": {"by": "docker", "engine": "podman", "container": NAME, "run": run},
    }
    return {
        "watch": {"interval": "200ms", "discover": False},
        "warm": {"enabled": False},
        "relief": {"mode": "act"},
        "backends": [entry],
    }


@pytest.mark.parametrize("front", FRONTS)
def test_it_is_made_anew_with_a_shorter_context(
    tmp_path: Path, small_model: Path, reached: RealEngine, front: str
) -> None:
    port = free_port()
    words = [str(word) for word in stand_in(small_model, port, "--simulate-ignore-sigterm")]
    words = [word.replace("{prompt_cache_mib}", "0") for word in words]
    words = [*FRONTS[front], *words]
    run = [*_run(reached, small_model), *words]
    reached.run("run", "--detach", "--name", NAME, *[word.replace("{context}", "24576") for word in run])
    with in_process(tmp_path, _config(small_model, port, run)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "found")
        daemon.until(lambda _: daemon.view("glm").context.now == 24576, "its context is known")
        before = daemon.view("glm")
        watched = daemon.app._roster.get("glm")
        assert watched is not None
        assert watched.supervisor is not None
        watched.supervisor.restart_by_hand(LaunchPlan(8192), 8192, seconds=0.0)
        daemon.until(lambda _: "backend_restarted" in daemon.event_names(), "restarted")
        daemon.until(lambda _: daemon.view("glm").context.now == 8192, "shorter")
        after = daemon.view("glm")
        assert not is_running(before.pid)
        assert is_running(after.pid)
        assert "backend_down" not in daemon.event_names()
        daemon.stop()
    assert is_running(after.pid)
    reached.run("rm", "--force", "-t", "0", NAME)
    reached.run("rm", "--force", f"{NAME}-before-moetuned")


def test_one_that_cannot_be_made_anew_is_started_again_and_not_down(
    tmp_path: Path, small_model: Path, reached: RealEngine
) -> None:
    port = free_port()
    words = [str(word).replace("{prompt_cache_mib}", "0") for word in stand_in(small_model, port)]
    start = tmp_path / "start-24576"  # The program for any other context is not there: that container does not start.
    start.write_text('#!/bin/sh\nexec "$@"\n')
    start.chmod(0o755)
    run = [*_run(reached, small_model, tmp_path), f"{tmp_path}/start-{{context}}", *words]
    reached.run("run", "--detach", "--name", NAME, *[word.replace("{context}", "24576") for word in run])
    with in_process(tmp_path, _config(small_model, port, run)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "found")
        before = daemon.view("glm")
        watched = daemon.app._roster.get("glm")
        assert watched is not None
        assert watched.supervisor is not None
        watched.supervisor.restart_by_hand(LaunchPlan(8192), 8192, seconds=0.0)
        daemon.until(lambda _: "backend_not_restarted" in daemon.event_names(), "told")
        daemon.until(lambda _: daemon.view("glm").pid not in (None, before.pid), "it runs again")
        daemon.until(daemon.phase_is("glm", "idle"), "it answers again")
        daemon.until(lambda _: daemon.view("glm").context.now == 24576, "its context is known")
        after = daemon.view("glm")
        begun, told = daemon.snapshot.events
        assert told.message.endswith("; it was started again")
        assert told.ended == (begun.id,)
        assert (after.context.now, after.restarts) == (24576, 0)
        assert not is_running(before.pid)
        assert is_running(after.pid)
        daemon.stop()
    reached.run("rm", "--force", "-t", "0", NAME)
