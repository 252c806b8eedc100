"""A daemon that is killed (SIGKILL) at every moment of a restart that saves conversations: one process, and no file of them is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import backend, free_port, is_running, view_of
from test_killed_daemon import WATCH, backends_of, killed_at, ready

from moetuned.api.errors import DaemonError

pytestmark = pytest.mark.backend
SLOTS = "import moetuned.host.slot_files as slots; "
NEXT = "lambda record, directory: record.pid is not None and record.context_length == 2048"
MOMENTS = {
    "it waits for its requests": "after(base.Supervisor, '_drain')",
    "before it saves": SLOTS + "before(slots, 'save_slots')",
    "a conversation is saved": SLOTS + "after(slots, '_act', lambda *words: words[2] == 'save')",
    "all are saved": SLOTS + "after(slots, 'save_slots')",
    "its end is recorded": "after(backend_record, 'write', lambda record, directory: record.ending)",
    "it was asked to end": "after(owner.ProcessSupervisor, '_terminate')",
    "it has ended": "before(owner.ProcessSupervisor, '_gone')",
    "the next is recorded": f"after(backend_record, 'write', {NEXT})",
    "before they are read": SLOTS + "before(slots, 'restore_slots')",
    "one is read": SLOTS + "after(slots, '_act', lambda *words: words[2] == 'restore')",
    "before they are removed": SLOTS + "before(slots, 'remove', lambda directory, names: bool(names))",
}


def ask(port: int) -> None:
    body = {"prompt": "a" * 300, "n_predict": 1500, "ignore_eos": True, "cache_prompt": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Iterator[Path]:
    """A name for it that no other test's backend has."""
    path = tmp_path / "own.gguf"
    path.symlink_to(small_model)
    yield path
    for pid in backends_of(path):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_a_restart(tmp_path: Path, model: Path, moment: str) -> None:
    port, kept = free_port(), tmp_path / "slots"
    kept.mkdir()
    entry = backend("glm", model, port, "--slot-save-path", str(kept), "--parallel", "1")
    daemon = killed_at(MOMENTS[moment], tmp_path, {**WATCH, "backends": [entry]})
    ready(daemon)
    daemon.until(lambda it: (view := view_of(it, "glm")) and view.layout and view.kind == "simulator", "it is known")
    threading.Thread(target=ask, args=(port,), daemon=True).start()
    daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase in ("prefill", "decode"), "busy")
    asked = {"backend": "glm", "do": "restart", "context": 2048, "now": False, "dry_run": False}
    with contextlib.suppress(DaemonError):  # it may be dead before it could answer
        daemon.client.post("/v1/backend", asked)
    assert daemon.process.wait(60) == -signal.SIGKILL, daemon.log
    daemon.again()
    try:
        limit = time.monotonic() + 60
        while True:
            pid = ready(daemon)
            if backends_of(model) == [pid] and not list(kept.iterdir()):
                break
            assert time.monotonic() < limit, (backends_of(model), list(kept.iterdir()), daemon.log)
        assert is_running(pid)
        assert in_state(pid) != "T"
        context = view_of(daemon.client.status(), "glm").context.now
        begun = list(MOMENTS).index(moment) >= list(MOMENTS).index("its end is recorded")
        assert context == (2048 if begun else 8192)
        assert "backend_down" not in [event.name.value for event in daemon.events()]
    finally:
        assert daemon.end() == 0
    assert backends_of(model) == []


def in_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_killed_while_it_is_held_for_a_second_look(tmp_path: Path, model: Path) -> None:
    """It is continued although nobody is there to do it, and taken over."""
    moment = "after(base.Supervisor, 'healthy', lambda one: one.state.stage == 'ready' and (one.hold() or one.held))"
    daemon = killed_at(moment, tmp_path, {**WATCH, "backends": [backend("glm", model, free_port())]})
    assert daemon.process.wait(60) == -signal.SIGKILL, daemon.log
    (pid,) = backends_of(model)
    limit = time.monotonic() + 60
    while in_state(pid) == "T":
        assert time.monotonic() < limit, "it is left stopped"
    daemon.again()
    try:
        assert ready(daemon) == pid
        assert backends_of(model) == [pid]
    finally:
        assert daemon.end() == 0


GIVE_BACK = """
from moetuned.decide.supervision import LaunchPlan
def gives(one):
    if one.state.stage == 'ready' and one.state.plan.context_length == 8192:
        one.give_back(LaunchPlan(16384, 64), 'there is room again')
after(base.Supervisor, 'healthy', gives)
"""
IN_A_GIVE_BACK = {
    "its end is recorded": "after(backend_record, 'write', lambda record, directory: record.ending)",
    "it has ended": "before(owner.ProcessSupervisor, '_gone')",
    "the next is started": "after(owner.spawn, 'start', lambda argv, *_: '16384' in argv)",
    "the next is recorded": f"after(backend_record, 'write', {NEXT.replace('2048', '16384')})",
}


@pytest.mark.parametrize("moment", IN_A_GIVE_BACK)
def test_killed_in_a_give_back(tmp_path: Path, model: Path, moment: str) -> None:
    config = {**WATCH, "backends": [backend("glm", model, free_port())]}
    daemon = killed_at(GIVE_BACK + IN_A_GIVE_BACK[moment], tmp_path, config)
    assert daemon.process.wait(60) == -signal.SIGKILL, daemon.log
    daemon.again()
    try:
        daemon.until(
            lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle" and view.context.now == 16384,
            "the rest of it is done",
        )
        assert backends_of(model) == [ready(daemon)]
    finally:
        assert daemon.end() == 0
    assert backends_of(model) == []
