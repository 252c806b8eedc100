"""A real daemon, a real backend that is killed, and a real server that hangs, resets, answers 500 and goes away: each alert arrives."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from fakes.hook_server import HookServer, Taken, raw, reset, status
from running import DaemonProcess, backend, daemon_process, free_port, is_running, view_of

pytestmark = pytest.mark.backend

WATCH = {"watch": {"interval": "200ms", "idle_interval": "200ms", "discover": False}}


@pytest.fixture
def server() -> Iterator[HookServer]:
    server = HookServer()
    yield server
    server.close()


def first_ids(taken: list[Taken]) -> list[str]:
    """Ids in the order of their first arrival."""
    return list(dict.fromkeys(msgspec.json.decode(each.body)["id"] for each in taken))


def ready(daemon: DaemonProcess) -> int:
    snapshot = daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "ready")
    return int(view_of(snapshot, "glm").pid)


def kill_backend(daemon: DaemonProcess) -> None:
    """And wait until it is there again."""
    pid = ready(daemon)
    before = len(daemon.events())
    os.kill(pid, signal.SIGKILL)
    daemon.until(
        lambda _: any(event.name == "backend_recovered" for event in daemon.events()[before:]), "it is there again"
    )


def test_each_arrives_in_order_whatever_the_server_does(tmp_path: Path, small_model: Path, server: HookServer) -> None:
    server.behaviours = [server.hang, reset, raw(b"rubbish"), status(500), status(200)]
    alerts = [{"kind": "webhook", "url": f"{server.url}/hook", "timeout": "300ms"}]
    config = {**WATCH, "backends": [backend("glm", small_model, free_port())], "alerts": alerts}
    with daemon_process(tmp_path, config) as daemon:
        kill_backend(daemon)
        kill_backend(daemon)
        ids = [event.id for event in daemon.events()]
        assert len(ids) >= 4
        taken = server.wait_for(lambda taken: len(first_ids(taken[4:])) == len(ids))
        assert first_ids(taken) == first_ids(taken[4:]) == ids
        assert len(taken) >= len(ids) + 4, "the first was tried again"
        bodies = [msgspec.json.decode(each.body) for each in taken[4:]]
        assert [(each["status"], each["keys"]) for each in bodies[:2]] == [
            ("firing", ["glm/backend_down"]), ("resolved", ["glm/backend_down"]),
        ]  # fmt: skip


def test_none_is_lost_over_a_kill_of_the_daemon_while_the_server_is_gone(tmp_path: Path, small_model: Path) -> None:
    port = free_port()
    alerts = [{"kind": "webhook", "url": f"http://127.0.0.1:{port}/hook", "timeout": "300ms"}]
    config = {**WATCH, "backends": [backend("glm", small_model, free_port())], "alerts": alerts}
    with daemon_process(tmp_path, config) as daemon:
        kill_backend(daemon)
        kept = daemon.state / "alerts" / "webhook.json"
        until(lambda: kept.exists() and len(waiting(kept)) == len(daemon.events()), "it is kept")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert daemon.end(signal.SIGKILL) == -signal.SIGKILL
        before = [event["id"] for event in map(msgspec.json.decode, (daemon.state / "events.jsonl").open("rb"))]
        daemon.again()
        ready(daemon)
        assert [event.id for event in daemon.events()][: len(before)] == before, "events outlive it too"
        daemon.end()
        daemon.again()
        ready(daemon)
        server = HookServer(port=port)
        try:
            ids = [event.id for event in daemon.events()]
            taken = server.wait_for(lambda taken: len(first_ids(taken)) >= len(ids))
            assert first_ids(taken) == ids
            until(lambda: waiting(kept) == [], "nothing waits any more")
        finally:
            server.close()


def test_one_that_hangs_holds_up_neither_another_nor_the_daemon(
    tmp_path: Path, small_model: Path, server: HookServer
) -> None:
    hanging = HookServer()
    hanging.behaviours = [hanging.hang]
    alerts = [
        {"kind": "webhook", "name": "hangs", "url": hanging.url, "timeout": "10m"},
        {"kind": "webhook", "name": "well", "url": server.url},
    ]
    config = {**WATCH, "backends": [backend("glm", small_model, free_port())], "alerts": alerts}
    try:
        with daemon_process(tmp_path, config) as daemon:
            before = children_of(daemon.process.pid)
            kill_backend(daemon)
            ids = [event.id for event in daemon.events()]
            assert first_ids(server.wait_for(lambda taken: len(first_ids(taken)) == len(ids))) == ids
            hanging.wait_for(lambda taken: len(taken) == 1)
            view = next(each for each in daemon.client.alerts().sinks if each.name == "hangs")
            assert (view.sending, view.waiting) == (True, len(ids))
            left = children_of(daemon.process.pid) - before
            began = time.monotonic()
            assert daemon.end() == 0
            assert time.monotonic() - began < 60, "it is not waited for ten minutes"
            assert len(waiting(daemon.state / "alerts" / "hangs.json")) == len(ids)
    finally:
        hanging.close()
    until(lambda: not any(is_running(pid) for pid in left), "what delivers ends once the server does")


def waiting(path: Path) -> list[str]:
    kept = msgspec.json.decode(path.read_bytes())
    return [each["told"]["event"]["id"] for each in kept["outbox"]["waiting"]]


def children_of(pid: int) -> set[int]:
    return {
        int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()
    }


def until(condition: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.05)
