"""The way of an alert for real: daemon, Prometheus, Alertmanager, a receiver; and node_exporter with the daemon's file."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import signal
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.debian_programs import program
from fakes.monitoring_process import MonitoringProcess, monitoring
from running import backend, daemon_process, free_port, view_of

pytestmark = pytest.mark.backend
ROOT = Path(__file__).resolve().parents[2]
WATCH = {"watch": {"discover": False, "interval": "200ms", "idle_interval": "200ms"}, "warm": {"enabled": False}}


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Where Alertmanager posts to, and what it posted."""
    got: list[dict[str, Any]] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", got
    server.shutdown()
    thread.join()
    server.server_close()


@contextlib.contextmanager
def alertmanager(directory: Path, receiver: str) -> Iterator[MonitoringProcess]:
    config = {
        "route": {"receiver": "test", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s"},
        "receivers": [{"name": "test", "webhook_configs": [{"url": receiver}]}],
    }
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(config))
    listen = f"127.0.0.1:{free_port()}"
    command = [
        program("prometheus-alertmanager"), "--config.file=alertmanager.yml", f"--storage.path={directory}/alerts",
        f"--web.listen-address={listen}", "--cluster.listen-address=",
    ]  # fmt: skip
    with monitoring(command, f"http://{listen}", directory) as process:
        yield process


@contextlib.contextmanager
def prometheus(directory: Path, target: str, manager: MonitoringProcess) -> Iterator[MonitoringProcess]:
    """With the config and the rules that ship, quicker and at other addresses."""
    rules = (ROOT / "etc/prometheus/moetuned.rules.yml").read_text()
    quick, changed = re.subn(r"^( +for: )\d+[sm]$", r"\g<1>1s", rules, flags=re.MULTILINE)
    assert changed == rules.count("- alert:")
    (directory / "moetuned.rules.yml").write_text(quick)
    config = (ROOT / "etc/prometheus/prometheus.yml").read_text()
    for old, new in (
        ('127.0.0.1:9843"]', f'{target}"]'),
        ("127.0.0.1:9093", manager.url.removeprefix("http://")),
        ("_interval: 15s", "_interval: 250ms"),
        ("/etc/prometheus/", f"{directory}/"),
    ):
        assert old in config
        config = config.replace(old, new)
    (directory / "prometheus.yml").write_text(config)
    listen = f"127.0.0.1:{free_port()}"
    command = [
        program("prometheus"), "--config.file=prometheus.yml", f"--storage.tsdb.path={directory}/series",
        f"--web.listen-address={listen}",
    ]  # fmt: skip
    with monitoring(command, f"http://{listen}", directory) as process:
        yield process


def dashboard_queries() -> dict[str, list[str]]:
    """What the dashboard asks, by panel, for all machines and backends."""
    board = json.loads((ROOT / "etc/grafana/moetuned.json").read_text())
    asked = {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in board["panels"]}
    asked["annotations"] = [note["expr"] for note in board["annotations"]["list"] if "expr" in note]
    for old, new in (("$backend", ".*"), ("$instance", ".*"), ("$__rate_interval", "5s")):
        asked = {title: [query.replace(old, new) for query in queries] for title, queries in asked.items()}
    return asked


def test_an_alert_fires_arrives_and_resolves(
    tmp_path: Path, small_model: Path, receiver: tuple[str, list[dict[str, Any]]]
) -> None:
    for needed in ("prometheus", "prometheus-alertmanager"):
        program(needed)
    url, got = receiver
    model = tmp_path / "model.gguf"
    model.symlink_to(small_model)
    listen = f"127.0.0.1:{free_port()}"
    config = {**WATCH, "api": {"listen": listen}, "backends": [backend("glm", model, free_port())]}

    def of(name: str, status: str) -> list[dict[str, Any]]:
        return [
            alert
            for each in got
            for alert in each["alerts"]
            if (alert["labels"]["alertname"], alert["status"]) == (name, status)
        ]

    with (
        daemon_process(tmp_path, config) as daemon,
        alertmanager(tmp_path, url) as manager,
        prometheus(tmp_path, listen, manager) as server,
    ):
        snapshot = daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "ready")

        def value(query: str) -> str | None:
            found = results(query)
            return found[0]["value"][1] if found else None

        def results(query: str) -> list[Any]:
            answer = server.json(f"/api/v1/query?{urllib.parse.urlencode({'query': query})}")
            assert answer["status"] == "success"
            found: list[Any] = answer["data"]["result"]
            return found

        idle = 'moetuned_backend_state{backend="glm",state="idle"}'
        server.until(lambda: value(idle) == "1", "a scrape of a backend that is idle")
        answers = {title: [results(query) for query in queries] for title, queries in dashboard_queries().items()}
        shown = {title for title, found in answers.items() if any(found)}
        assert {"How it gets its bytes", "What it does", "Headroom", "Memory by what holds it"} <= shown
        # Only OpenMetrics has units.
        told = server.json("/api/v1/metadata?metric=moetuned_cpu_seconds")["data"]
        assert [one["unit"] for one in told["moetuned_cpu_seconds"]] == ["seconds"]
        assert of("MoetunedBackendDown", "firing") == []

        model.unlink()
        os.kill(view_of(snapshot, "glm").pid, signal.SIGKILL)
        manager.until(lambda: of("MoetunedBackendDown", "firing"), "the alert")
        (held,) = manager.json("/api/v2/alerts?filter=alertname%3DMoetunedBackendDown")
        assert held["labels"]["backend"] == "glm"
        assert held["labels"]["severity"] == "critical"
        assert "(it is waiting)" in held["annotations"]["description"]
        names = [event.name.value for event in daemon.events()]
        assert names
        counted = f'moetuned_events_total{{event="{names[0]}"}}'
        server.until(lambda: value(counted) == str(names.count(names[0])), "the event as a metric")

        model.symlink_to(small_model)
        daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "back")
        manager.until(lambda: of("MoetunedBackendDown", "resolved"), "its end")

        assert of("MoetunedGone", "firing") == []
        assert daemon.end() == 0
        manager.until(lambda: of("MoetunedGone", "firing"), "that the daemon is gone")
        (gone,) = manager.json("/api/v2/alerts?filter=alertname%3DMoetunedGone")
        assert gone["labels"]["instance"] == listen


def test_node_exporter_reads_the_file(tmp_path: Path) -> None:
    exporter, port = program("prometheus-node-exporter"), free_port()
    place = tmp_path / "node-exporter"
    place.mkdir()
    config = {**WATCH, "metrics": {"textfile": str(place / "moetuned.prom"), "every": "5s"}}
    command = [
        exporter, "--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={place}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (
        daemon_process(tmp_path, config) as daemon,
        monitoring(command, f"http://127.0.0.1:{port}", tmp_path) as server,
    ):
        text = server.until(lambda: "moetuned_ticks_total" in (text := server.get("/metrics")) and text, "the metrics")
        assert "node_textfile_scrape_error 0\n" in text
        assert daemon.end() == 0
        assert "moetuned" not in server.get("/metrics")
