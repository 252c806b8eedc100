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


@pytest.mark.parametrize("front", FRONTS)
def test_it_is_made_anew_with_a_shorter_context(
    tmp_path: Path, small_model: Path, reached: RealEngine, front: str
) -> None:
    port = free_port()
    words = [str(word) for word in stand_in(small_model, port, "--simulate-ignore-sigterm")]
    words = [word.replace("{prompt_cache_mib}", "0") for word in words]
    words = [*FRONTS[front], *words]
    # What an editable installation points to need not be on the path.
    project = str(Path(moetuned.__file__).parents[1])
    paths = [path for path in (*sys.path, sys.prefix, sys.base_prefix, project) if path and os.path.isdir(path)]
    mounts = {path for path in (*paths, str(small_model.parent)) if not path.startswith("/usr")}
    options = [part for path in sorted(mounts) for part in ("-v", f"{path}:{path}:ro")]
    environment = ["-e", f"PYTHONPATH={':'.join(path for path in sys.path if path)}"]
    run = [*reached.options, *options, *environment, reached.image, *words]
    reached.run("run", "--detach", "--name", NAME, *[word.replace("{context}", "24576") for word in run])
    entry = {
        "name": "glm",
        "model": str(small_model),
        "url": f"http://127.0.0.1:{port}",
        "context": {"preferred": 24576, "minimum": 1024},
        "supervise": {"by": "docker", "engine": "podman", "container": NAME, "run": run},
    }
    config = {
        "watch": {"interval": "200ms", "discover": False},
        "warm": {"enabled": False},
        "relief": {"mode": "act"},
        "backends": [entry],
    }
    with in_process(tmp_path, config) as daemon:
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
