"""The webhook: what is sent, and what becomes of it with servers of every kind. In this process, and in one of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fakes.hook_server import HookServer, reset, status

from moetuned.alerts import find
from moetuned.alerts.webhook import body, send
from moetuned.daemon.alert_delivery import deliver
from moetuned.schema.alert import WebhookAlert
from moetuned.schema.event import Event, EventName
from moetuned.schema.verdict import Reason

EVENT = Event(
    "1-2", EventName.THRASH_BEGIN, 1_800_000_000.5, 5.0, "glm", 'It "thrashes": ü',
    (Reason("paging", "refault_ratio", 0.9, 0.5, 12.0, "refaults 90 %"),),
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[HookServer]:
    server = HookServer()
    yield server
    server.close()


def config(server: HookServer, **changes: object) -> WebhookAlert:
    return msgspec.structs.replace(WebhookAlert(url=f"{server.url}/hook/secret"), **changes)


def test_the_event_arrives_as_documented(server: HookServer) -> None:
    (result,) = send(EVENT, config(server))
    assert result.ok
    assert result.target == f"{server.url}/…"
    (taken,) = server.taken
    assert taken.path == "/hook/secret"
    assert taken.headers["Content-Type"] == "application/json"
    assert msgspec.json.decode(taken.body) == {
        "version": 1,
        "id": "1-2",
        "status": "firing",
        "keys": ["glm/thrash_begin"],
        "closes": [],
        "event": "thrash_begin",
        "backend": "glm",
        "message": 'It "thrashes": ü',
        "reasons": ["refaults 90 %"],
        "time": "2027-01-15T08:00:00Z",
        "wall_seconds": 1_800_000_000.5,
        "host": socket.gethostname(),
        "test": False,
    }


@pytest.mark.parametrize(
    ("name", "backend", "state", "keys"),
    [
        (EventName.THRASH_END, "glm", "resolved", "glm/thrash_begin"),
        (EventName.BACKEND_OOM_KILLED, "glm", "firing", "glm/backend_down"),
        (EventName.BACKEND_RECOVERED, "glm", "resolved", "glm/backend_down"),
        (EventName.MEMORY_RECOVERED, "glm", "resolved", "glm/memory_near_limit glm/relief_exhausted"),
        (EventName.TUNING_DRIFTED, None, "firing", "machine/tuning_drifted"),
        (EventName.TEST, None, "firing", "machine/test"),
    ],
)
def test_begin_and_end_have_the_same_key(name: EventName, backend: str | None, state: str, keys: str) -> None:
    sent = msgspec.json.decode(body(msgspec.structs.replace(EVENT, name=name, backend=backend)))
    assert (sent["status"], sent["keys"], sent["test"]) == (state, keys.split(), name is EventName.TEST)


def test_a_time_that_is_none_is_null() -> None:
    assert msgspec.json.decode(body(msgspec.structs.replace(EVENT, wall_seconds=1e30)))["time"] is None


def test_headers_come_from_a_file(server: HookServer, tmp_path: Path) -> None:
    path = tmp_path / "headers"
    path.write_text("Authorization: Bearer of-mine\nContent-Type: application/x-mine\n")
    path.chmod(0o600)
    assert send(EVENT, config(server, headers_file=str(path)))[0].ok
    assert server.taken[0].headers["Authorization"] == "Bearer of-mine"
    assert server.taken[0].headers["Content-Type"] == "application/x-mine"


@pytest.mark.parametrize(
    ("text", "mode", "why"), [("A: of-mine", 0o644, "chmod 600"), ("of-mine", 0o600, "line 1 is no header")]
)
def test_without_its_headers_nothing_is_sent(
    server: HookServer, tmp_path: Path, text: str, mode: int, why: str
) -> None:
    path = tmp_path / "headers"
    path.write_text(text)
    path.chmod(mode)
    (result,) = send(EVENT, config(server, headers_file=str(path)))
    assert (result.ok, result.retry) == (False, True)
    assert why in result.detail
    assert str(path) in result.detail
    assert "of-mine" not in result.detail
    assert server.taken == []


def test_what_fails_is_told_without_the_path(server: HookServer) -> None:
    server.behaviours = [status(503, {"Retry-After": "9"}), status(404), reset]
    results = [send(EVENT, config(server))[0] for _ in range(3)]
    assert [(each.ok, each.retry, each.retry_after_seconds) for each in results] == [
        (False, True, 9.0), (False, False, None), (False, True, None),
    ]  # fmt: skip
    assert "secret" not in repr(results)


def test_in_a_process_of_its_own(server: HookServer) -> None:
    (result,) = deliver(find("webhook"), EVENT, config(server))
    assert result.ok, result
    assert result.detail == f"{server.url}/… answered 200 OK"
    assert msgspec.json.decode(server.taken[0].body)["id"] == "1-2"


def test_one_that_hangs_is_left_in_time(server: HookServer) -> None:
    server.behaviours = [server.hang]
    (result,) = deliver(find("webhook"), EVENT, config(server, timeout="200ms"))
    assert (result.ok, result.retry, result.detail) == (False, True, f"{server.url}/…: no answer in time")


def test_the_daemon_imports_nothing_big_for_it() -> None:
    code = (
        "import sys, moetuned.alerts as a; before = set(sys.modules); [a.find(kind) for kind in a.kinds()]\n"
        "print(sorted({'ssl', 'http', 'http.client', 'email', 'urllib', 'urllib.request', 'asyncio'} & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_tells_that_a_restart_failed_has_the_key_of_its_begin() -> None:
    def sent(name: EventName, *ended: str) -> dict:
        return msgspec.json.decode(body(Event("a-2", name, 0.0, 0.0, "glm", "x", (), ended)))

    began, failed = sent(EventName.BACKEND_RESTARTING), sent(EventName.BACKEND_OOM_KILLED, "a-1")
    assert (failed["status"], failed["keys"], failed["closes"]) == ("firing", ["glm/backend_down"], began["keys"])
    assert sent(EventName.BACKEND_OOM_KILLED)["closes"] == []
