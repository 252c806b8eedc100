"""What the benchmarks share: models, stand-ins, what a process used."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from fakes.server_process import ServerProcess, started

Figure = Callable[[str, float, str], None]


def middle(values: Iterable[float]) -> float:
    """The median: one slow run on a busy machine says nothing."""
    return statistics.median(values)


def make_model(path: Path, size: str) -> Path:
    """A random Mixture-of-Experts model."""
    subprocess.run(
        [sys.executable, "-m", "moetuned.simulator", "make-model", str(path), "--size", size],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return path


@contextlib.contextmanager
def stand_in(model: Path, *flags: str) -> Iterator[tuple[ServerProcess, str]]:
    """A stand-in that is ready, and its address."""
    arguments = ("moetuned.simulator", "serve", "-m", str(model), "--port", "0", "--metrics", "-c", "2048", *flags)
    with started(*arguments) as server:
        url = server.wait_for(r"listening on (http://[\w.:]+)")[1]
        while not is_healthy(url):
            assert server.process.poll() is None, server.log
            time.sleep(0.1)
        yield server, url


def completion(url: str, prompt: str, tokens: int) -> dict[str, Any]:
    """Ask for exactly so many tokens."""
    body = {
        "prompt": prompt, "n_predict": tokens, "ignore_eos": True, "cache_prompt": False, "temperature": 1.0,
        "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 7,
    }  # fmt: skip
    request = urllib.request.Request(url + "/completion", data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=600) as response:
        answer: dict[str, Any] = json.loads(response.read())
        return answer


def is_healthy(url: str) -> bool:
    """Whether /health answers 200."""
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def cpu_seconds(pid: int) -> tuple[float, float]:
    """CPU time of a process's first thread and of its other threads, to the nanosecond."""
    used = {int(task): int(_schedstat(pid, task).split()[0]) / 1e9 for task in os.listdir(f"/proc/{pid}/task")}
    first = used.pop(pid)
    return first, sum(used.values())


def _schedstat(pid: int, task: str) -> str:
    return Path(f"/proc/{pid}/task/{task}/schedstat").read_text()


def status_bytes(pid: int, field: str) -> int:
    """A field of /proc/PID/status, e.g. VmRSS."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"no {field}")


def read_bytes(pid: int) -> int:
    """What a process has read from the disk."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise AssertionError("no read_bytes")


def drop(path: Path) -> None:
    """Take a file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
