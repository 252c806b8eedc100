"""The whole way: a backend goes down, a real Alertmanager says so to its receiver, the backend is back, the alert is resolved."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.hook_server import HookServer, Taken
from fakes.real_alertmanager import real_alertmanager
from running import daemon_process, free_port, in_process, stand_in, view_of

from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.verdict import Phase

pytestmark = pytest.mark.backend


def _serve(model: Path, port: int) -> subprocess.Popen[bytes]:
    command = [word.replace("{context}", "4096").replace("{prompt_cache_mib}", "0") for word in stand_in(model, port)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _told(taken: list[Taken]) -> list[tuple[str, str]]:
    """Status and name of each alert that the receiver was notified of."""
    return [
        (alert["status"], alert["labels"]["alertname"])
        for each in taken
        for alert in msgspec.json.decode(each.body)["alerts"]
    ]


def test_a_backend_that_goes_down_is_an_alert_and_back_again_resolves_it(tmp_path: Path, small_model: Path) -> None:
    port, receiver = free_port(), HookServer()
    server = None
    try:
        with real_alertmanager(tmp_path, f"{receiver.url}/hook") as alertmanager:
            server = _serve(small_model, port)
            config: dict[str, Any] = {
                "watch": {"discover": False, "interval": "200ms"},
                "warm": {"enabled": False},
                "backends": [{"name": "glm", "model": str(small_model), "url": f"http://127.0.0.1:{port}"}],
                "alerts": [{"kind": "alertmanager", "urls": [alertmanager.url], "labels": {"team": "ml"}}],
            }
            with daemon_process(tmp_path, config) as daemon:
                daemon.until(lambda now: (view := view_of(now, "glm")) and view.verdict.phase == Phase.IDLE, "ready")
                server.kill()
                server.wait()
                receiver.wait_for(lambda taken: ("firing", "MoetunedBackendDown") in _told(taken))
                (alert,) = alertmanager.alerts()
                assert alert["labels"].items() >= {"backend": "glm", "severity": "critical", "team": "ml"}.items()
                assert alert["annotations"]["summary"].startswith("glm: ")
                assert alert["status"]["state"] == "active"
                server = _serve(small_model, port)
                receiver.wait_for(lambda taken: ("resolved", "MoetunedBackendDown") in _told(taken))
                assert alertmanager.alerts() == []
                assert daemon.end() == 0
    finally:
        receiver.close()
        if server is not None:
            server.kill()
            server.wait()


def test_a_restart_that_is_refused_is_an_alert_and_resolves_that_it_is_restarted(
    tmp_path: Path, small_model: Path
) -> None:
    port, receiver = free_port(), HookServer()
    server = _serve(small_model, port)
    try:
        with real_alertmanager(tmp_path, f"{receiver.url}/hook") as alertmanager:
            entry = {
                "name": "glm",
                "model": str(small_model),
                "url": f"http://127.0.0.1:{port}",
                "supervise": {"by": "command", "restart": ["/bin/false"]},
            }
            config: dict[str, Any] = {
                "watch": {"discover": False, "interval": "200ms"},
                "warm": {"enabled": False},
                "backends": [entry],
                "alerts": [
                    {"kind": "alertmanager", "urls": [alertmanager.url]},
                    {"kind": "webhook", "url": f"{receiver.url}/restarts", "on": ["backend_restarting"]},
                ],
            }
            with in_process(tmp_path, config) as daemon:
                daemon.until(daemon.phase_is("glm", "idle"), "found")
                watched = daemon.app._roster.get("glm")
                assert watched is not None
                assert watched.supervisor is not None
                watched.supervisor.restart_by_hand(LaunchPlan(4096))
                daemon.until(lambda _: "backend_not_restarted" in daemon.event_names(), "refused")
                daemon.until(lambda _: len(_sent(receiver)) == 2, "the webhook has heard both")
                daemon.until(
                    lambda _: (
                        [one["labels"]["alertname"] for one in alertmanager.alerts()] == ["MoetunedBackendNotRestarted"]
                    ),
                    "that it is restarted is resolved",
                )
                begun, refused = (event for event in daemon.snapshot.events if event.backend == "glm")
                assert (begun.name, refused.ended) == ("backend_restarting", (begun.id,))
                assert watched.supervisor.process is not None
                assert "backend_down" not in daemon.event_names()
                daemon.stop()
        first, second = _sent(receiver)
        assert (second["event"], second["closes"]) == ("backend_not_restarted", first["keys"])
    finally:
        receiver.close()
        server.kill()
        server.wait()


def _sent(receiver: HookServer) -> list[dict[str, Any]]:
    return [msgspec.json.decode(one.body) for one in receiver.taken if one.path == "/restarts"]
