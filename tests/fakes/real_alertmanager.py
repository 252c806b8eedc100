"""Debian's prometheus-alertmanager on a loopback port, with a webhook that it notifies. Skips the test where it is not installed."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fakes import debian_programs

_CONFIG = """\
route: {{receiver: hook, group_by: ["..."], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: hook, webhook_configs: [{{url: "{hook}"}}]}}]
"""


class RealAlertmanager:
    """It answers at `url`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def alerts(self) -> list[dict[str, Any]]:
        """What is firing now."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/api/v2/alerts")
            found: list[dict[str, Any]] = json.loads(connection.getresponse().read())
        return found


@contextlib.contextmanager
def real_alertmanager(directory: Path, hook: str) -> Iterator[RealAlertmanager]:
    """One that tells `hook` (a URL) what fires and what is resolved, each alert by itself."""
    program = debian_programs.program("prometheus-alertmanager")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = directory / "alertmanager.yml"
    config.write_text(_CONFIG.format(hook=hook))
    process = subprocess.Popen(
        [
            program, f"--config.file={config}", f"--storage.path={directory / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "Listening on" in line:
                break
        else:
            raise AssertionError(f"Alertmanager did not start:\n{''.join(said)}")
        yield RealAlertmanager(port)
    finally:
        process.kill()
        process.communicate()
