"""A Prometheus, Alertmanager or node_exporter of Debian as a process of a test: own port, data below the test's directory, ended by its pid."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 60.0
"""Only ends a test that would otherwise hang."""


class MonitoringProcess:
    """Asked over HTTP at `url`."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self.log = log

    def get(self, path: str) -> str:
        """Body of a good answer. Raises OSError."""
        with urllib.request.urlopen(self.url + path, timeout=LIMIT_SECONDS) as answer:
            text: str = answer.read().decode()
        return text

    def json(self, path: str) -> Any:
        return json.loads(self.get(path))

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """What the condition gives as soon as it is something; a refused connection is nothing yet."""
        limit = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < limit:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                if found := condition():
                    return found
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
                raise AssertionError(f"it ended with {self.process.returncode}:\n{self.log.read_text()}")
        raise AssertionError(f"it never came to this: {what}\n{self.log.read_text()}")


@contextlib.contextmanager
def monitoring(command: Sequence[str], url: str, directory: Path) -> Iterator[MonitoringProcess]:
    """Started in `directory`, and ended whatever happens."""
    log = directory / f"{Path(command[0]).name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=output)
    try:
        yield MonitoringProcess(process, url, log)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
