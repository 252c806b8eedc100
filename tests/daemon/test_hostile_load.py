"""A daemon under two hundred clients that mean ill: looks go on, nothing grows, nothing is left, and nobody acts who may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.hostile_clients import SENDS
from running import DaemonProcess, backend, daemon_process, free_port, view_of

from moetuned.api.routes import ACTIONS

pytestmark = pytest.mark.backend
TESTS = Path(__file__).resolve().parents[1]
WATCH = {"watch": {"discover": False, "interval": "200ms", "idle_interval": "200ms"}, "warm": {"enabled": False}}
GROWTH_BYTES = 8 << 20
"""Far more than 64 clients' buffers take, far less than what they send."""
NEVER = {
    "huge header": {"431"},
    "many headers": {"431"},
    "huge body": {"413"},
    "endless body": {"400"},
    "foreign host": {"421"},
    "cross origin": {"403"},
    "cross origin, socket": {"403"},
    "post": {"405"},
    "other methods": {"405"},
    "whole address": {"400"},
    "pretended post": {"405"},
    "half open": {"400"},
    "rubbish": {"400", "431", "505"},
    "deaf": set(),
}
"""What these may be answered, beside 503 (too many) and 408 (too slow)."""


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_looks_go_on_nothing_grows_and_nothing_is_left(tmp_path: Path, small_model: Path) -> None:
    port = free_port()
    config = {
        **WATCH,
        "api": {"listen": f"127.0.0.1:{port}"},
        "backends": [backend("glm", small_model, free_port())],
    }
    with daemon_process(tmp_path, config) as daemon:
        daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "ready")
        daemon.client.metrics()
        pid = daemon.process.pid
        before = daemon.client.status()
        resident, files = resident_bytes(pid), open_files(pid)
        command = [sys.executable, "-m", "fakes.hostile_clients", str(port), str(daemon.runtime / "api.sock")]
        environ = {**os.environ, "PYTHONPATH": str(TESTS)}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as clients:
            try:
                ticks = daemon.until(lambda it: it.daemon.api_connections > 30, "a crowd").daemon.ticks
                during = daemon.until(lambda it: it.daemon.ticks >= ticks + 15, "looks that go on")
                told, _ = clients.communicate(timeout=60)
            finally:
                clients.kill()
        counts = json.loads(told)
        after = daemon.until(lambda it: it.daemon.api_connections == 1, "that all others are gone")

        assert {name.removesuffix(", socket") for name in counts} == set(SENDS)
        assert sum(each["connections"] for each in counts.values()) > 200
        for kind, allowed in NEVER.items():
            assert set(counts[kind]) - {"connections", "503", "408"} <= allowed, kind
        answers = {status for each in counts.values() for status in each}
        assert {"200", "400", "403", "405", "413", "421", "431", "503"} <= answers
        assert during.daemon.api_connections <= 64
        assert resident_bytes(pid) - resident < GROWTH_BYTES
        assert open_files(pid) <= files + 1
        # Nothing was done, and nothing failed that it did not expect.
        assert view_of(after, "glm").pid == view_of(before, "glm").pid
        assert after.daemon.event_counts == before.daemon.event_counts
        assert "reloaded" not in daemon.log
        assert "Traceback" not in daemon.log


STRANGER = """
import json, os, socket, sys
os.chdir(sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
answers = {}
for request in sys.argv[2:]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        try:
            connection.connect("api.sock")
        except OSError as error:
            answers[request] = error.errno
            continue
        method, path = request.split()
        body = "" if method == "GET" else "Content-Length: 2\\r\\n"
        connection.sendall(f"{request} HTTP/1.1\\r\\nHost: localhost\\r\\n{body}Connection: close\\r\\n\\r\\n{'{}' * bool(body)}".encode())
        answers[request] = int(connection.makefile("rb").readline().split()[1])
print(json.dumps(answers))
"""


def as_stranger(daemon: DaemonProcess, *requests: str) -> dict[str, int]:
    """Status of each request of a process of nobody's, or the error of its connect."""
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, str(daemon.runtime), *requests], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.kernel
def test_nobody_acts_without_the_permissions_of_the_socket(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    posts = [f"POST /v1/{name}" for name in sorted(ACTIONS)]
    with daemon_process(tmp_path, WATCH) as daemon:
        daemon.until(lambda it: it.daemon.ticks, "a tick")
        assert set(as_stranger(daemon, "GET /v1/status", *posts).values()) == {13}  # EACCES
        (daemon.runtime / "api.sock").chmod(0o666)
        answers = as_stranger(daemon, "GET /v1/status", "GET /metrics", *posts)
        assert answers.pop("GET /v1/status") == answers.pop("GET /metrics") == 200
        assert answers == dict.fromkeys(posts, 403)
        assert "reloaded" not in daemon.log
