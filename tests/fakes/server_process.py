"""A llama-server (stand-in or real) started as a process on a port of its own; its log says when it is ready."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class ServerProcess:
    """The process, its base URL once it listens, and its log so far."""

    def __init__(self, arguments: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.log: list[str] = []

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read the log until a line matches; AssertionError with the log when it ends before."""
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no {pattern!r} before the end of the log:\n{''.join(self.log)}")

    def status(self, field: str) -> int:
        """Bytes of a field of /proc/PID/status."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) << 10
        raise AssertionError(f"no {field}")

    def maps(self) -> str:
        return Path(f"/proc/{self.process.pid}/maps").read_text()

    def cpu_ticks(self) -> int:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def end(self, number: int) -> int:
        """Send a signal and wait; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


@contextmanager
def started(*arguments: str) -> Iterator[ServerProcess]:
    server = ServerProcess(list(arguments))
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stderr.close()


def http(url: str, body: Any = None) -> tuple[int, str]:
    """Status and text of a GET, or of a POST of `body` as JSON."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
