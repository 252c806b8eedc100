"""The whole way: a backend goes down, a real Alertmanager says so to its receiver, the backend is back, the alert is resolved."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.hook_server import HookServer, Taken
from fakes.real_alertmanager import real_alertmanager
from running import daemon_process, free_port, stand_in, view_of

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
