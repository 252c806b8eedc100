"""What a daemon that only watches may not load: each of these is a part of its 36 MiB, and what needs it does so seldom or never there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.server_process import started
from running import free_port

pytestmark = pytest.mark.backend

_WATCH = """
import json, sys, time
from moetuned.daemon.app import App, Paths
from moetuned.daemon.config_loading import load_checked
from moetuned.daemon.loop import Loop
from moetuned.host.clock import RealClock
from moetuned.host.service_notify import ServiceNotifier

config, place = sys.argv[1:]
clock = RealClock()
loop = Loop(clock)
paths = Paths(config, f"{place}/undo.jsonl", f"{place}/backends", f"{place}/api.sock")
app = App(load_checked(config), paths, clock, loop, ServiceNotifier({}))
app.start()
until = time.monotonic() + 60
known = False
while not known and time.monotonic() < until:
    loop.run_once(0.1)
    views = app.snapshot.backends
    known = all(record is not None and record.opened for record in (one.heat for one in app._roster)) and all(view.verdict.phase == "idle" and view.devices and view.residency.age_seconds is not None for view in views)
loaded = sorted(sys.modules)
libraries = sorted({line.split()[-1].rpartition("/")[2] for line in open("/proc/self/maps") if ".so" in line})
app.close()
print(json.dumps([known, loaded, libraries]))
"""

_SELDOM_PYTHON = (
    "_hashlib", "asyncio", "curses", "difflib", "email", "hashlib", "hmac", "html", "http.client", "http.server", "importlib.resources",
    "multiprocessing", "psutil", "prometheus_client", "secrets", "sqlite3", "ssl", "unittest", "urllib.request", "xml", "xmlrpc",
)  # fmt: skip
"""hashlib, hmac, secrets and ssl load OpenSSL (see `moetuned.host.own_sha256`)."""

_SELDOM_OURS = (
    "moetuned.alerts.alertmanager", "moetuned.alerts.desktop", "moetuned.alerts.exec", "moetuned.alerts.mail", "moetuned.alerts.ntfy",
    "moetuned.alerts.webhook", "moetuned.api.client", "moetuned.api.metric_catalogue", "moetuned.api.metrics", "moetuned.cli",
    "moetuned.decide.explain", "moetuned.decide.unit_adoption", "moetuned.host.container", "moetuned.host.engine_cli",
    "moetuned.host.fit_params", "moetuned.host.http_post", "moetuned.host.read_ahead_measure", "moetuned.host.rehearsals",
    "moetuned.host.rehearsing", "moetuned.host.script_service", "moetuned.host.stranger",
    "moetuned.host.swap_files", "moetuned.host.swap_host", "moetuned.host.systemd_unit", "moetuned.parse.config_sample",
    "moetuned.state.swap_file", "moetuned.state.trace",
)  # fmt: skip


def test_what_watches_two_backends_loads_no_more_than_that_takes(tmp_path: Path, small_model: Path) -> None:
    ports = [free_port(), free_port()]
    commands = [
        ["moetuned.simulator", "serve", "-m", str(small_model), "--port", str(port), "--metrics", "-c", "2048"]
        for port in ports
    ]
    config = tmp_path / "moetuned.yaml"
    backends = [{"name": f"b{port}", "url": f"http://127.0.0.1:{port}"} for port in ports]
    watch = {"discover": False, "interval": "200ms"}
    config.write_text(json.dumps({"api": {"listen": False}, "watch": watch, "backends": backends}))
    with started(*commands[0]) as one, started(*commands[1]) as other:
        for server in (one, other):
            server.wait_for("listening on")
        done = subprocess.run(
            [sys.executable, "-c", _WATCH, str(config), str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    known, loaded, libraries = json.loads(done.stdout)
    assert known, done.stderr
    too_much = {
        name
        for name in loaded
        for seldom in (*_SELDOM_PYTHON, *_SELDOM_OURS)
        if name == seldom or name.startswith(f"{seldom}.")
    }
    assert too_much == set()
    assert [name for name in libraries if name.startswith(("libcrypto", "libssl"))] == []
