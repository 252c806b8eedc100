"""The daemon with a backend that a script of its owner's starts: found, relieved through the script, left running at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.own_cgroup import own_cgroup
from running import free_port, in_process, is_running, stand_in
from test_daemon_with_backends import LIMIT_BYTES, MIB, Hog

from moetuned.decide.supervision import LaunchPlan

pytestmark = [pytest.mark.backend, pytest.mark.kernel]

RESTART = """#!/bin/sh
# $1: directory, $2: cgroup, $3: context
set -eu
if [ -s "$1/pid" ]; then
    kill "$(cat "$1/pid")" || true
    while kill -0 "$(cat "$1/pid")" 2>/dev/null; do sleep 0.05; done
fi
echo "$3" >>"$1/contexts"
{variables}
setsid sh -c 'echo $$ >"$1/cgroup.procs"; echo $$ >"$2/pid"; shift 2; exec "$@"' sh "$2" "$1" {command} </dev/null >"$1/log" 2>&1 &
"""


@pytest.fixture
def cgroup() -> Iterator[str]:
    with own_cgroup(LIMIT_BYTES) as directory:
        yield directory


def test_a_script_is_asked_for_a_shorter_context(tmp_path: Path, small_model: Path, cgroup: str) -> None:
    port = free_port()
    words = [
        word.replace("{context}", '"$3"').replace("{prompt_cache_mib}", "0") for word in stand_in(small_model, port)
    ]
    script = tmp_path / "restart"
    variables = f"export PYTHONPATH={':'.join(path for path in sys.path if path)}"
    script.write_text(RESTART.format(variables=variables, command=" ".join(words)))
    script.chmod(0o755)
    start = [str(script), str(tmp_path), cgroup]
    subprocess.run([*start, "24576"], check=True)
    entry = {
        "name": "glm",
        "model": str(small_model),
        "url": f"http://127.0.0.1:{port}",
        "context": {"preferred": 24576, "minimum": 1024},
        "supervise": {"by": "command", "restart": [*start, "{context}"], "timeout": "30s"},
    }
    config = {
        "watch": {"interval": "200ms", "discover": False},
        "warm": {"enabled": False},
        "relief": {"mode": "act", "cool_down": "10m"},
        "backends": [entry],
    }
    with in_process(tmp_path, config) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "found")
        daemon.until(lambda _: daemon.view("glm").cgroup == cgroup, "its cgroup is known")
        daemon.until(lambda _: daemon.view("glm").verdict.memory == "ok", "memory is ok")
        before = daemon.view("glm")
        assert (before.context.now, before.supervised) == (24576, True)
        hog = Hog(cgroup, LIMIT_BYTES)
        try:
            hog.leave(30 * MIB)
            daemon.until(lambda _: "backend_restarted" in daemon.event_names(), "restarted")
            daemon.until(daemon.phase_is("glm", "idle"), "ready again")
            after = daemon.view("glm")
        finally:
            hog.process.kill()
            hog.process.communicate()
        assert 1024 <= after.context.now < 24576
        assert (tmp_path / "contexts").read_text().split() == ["24576", str(after.context.now)]
        assert not is_running(before.pid)
        assert "backend_down" not in daemon.event_names()
        assert after.restarts == 1
        pid = after.pid
        daemon.stop()
    assert is_running(pid)


FAILS = """#!/bin/bash
set -e
kill "$(cat "$1/pid")"
while kill -0 "$(cat "$1/pid")" 2>/dev/null; do sleep 0.05; done
{again}
echo "it does not start with $2"
exit 3
"""


@pytest.mark.parametrize("again", [True, False])
def test_what_a_script_that_fails_leaves_is_told_as_it_is(tmp_path: Path, small_model: Path, again: bool) -> None:
    port = free_port()
    words = [
        word.replace("{context}", "24576").replace("{prompt_cache_mib}", "0") for word in stand_in(small_model, port)
    ]
    start = tmp_path / "start"
    start.write_text(f"""#!/bin/sh
export PYTHONPATH={":".join(path for path in sys.path if path)}
setsid sh -c 'echo $$ >"$1/pid"; shift; exec "$@"' sh {tmp_path} {" ".join(words)} </dev/null >/dev/null 2>&1 &
""")
    script = tmp_path / "restart"
    script.write_text(FAILS.format(again=start if again else ""))
    for one in (start, script):
        one.chmod(0o755)
    subprocess.run([start], check=True)
    entry = {
        "name": "glm",
        "model": str(small_model),
        "url": f"http://127.0.0.1:{port}",
        "supervise": {"by": "command", "restart": [str(script), str(tmp_path), "{context}"], "timeout": "30s"},
    }
    config = {"watch": {"interval": "200ms", "discover": False}, "warm": {"enabled": False}, "backends": [entry]}
    try:
        with in_process(tmp_path, config) as daemon:
            daemon.until(daemon.phase_is("glm", "idle"), "found")
            watched = daemon.app._roster.get("glm")
            assert watched is not None
            assert watched.supervisor is not None
            watched.supervisor.restart_by_hand(LaunchPlan(8192), 8192, seconds=0.0)
            daemon.until(lambda _: len(daemon.event_names()) == 2, "how it came out is told")
            begun, told = daemon.snapshot.events
            assert "ended with code 3: it does not start with 8192" in told.message
            assert told.ended == (begun.id,)
            if again:
                assert (told.name, told.message.rpartition("; ")[2]) == (
                    "backend_not_restarted",
                    "it was started again",
                )
                daemon.until(daemon.phase_is("glm", "idle"), "it answers again")
                assert daemon.view("glm").context.now == 24576
            else:
                assert (told.name, told.message.rpartition("; ")[2]) == ("backend_down", "it does not run")
                assert daemon.view("glm").pid is None
            assert len(daemon.event_names()) == 2
            daemon.stop()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
