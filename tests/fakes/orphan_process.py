"""A real process that is nobody's child and leads a session of its own, as what a launcher starts with setsid."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moetuned.host.processes import ProcessIdentity, identify, is_alive
from moetuned.parse.process import parse_process

Orphans = Callable[[], ProcessIdentity]


@pytest.fixture
def orphan() -> Iterator[Orphans]:
    """Starts one; ended after the test."""
    made: list[ProcessIdentity] = []

    def start() -> ProcessIdentity:
        script = "setsid sleep 1000 >/dev/null & echo $!"
        said = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, check=True, text=True)
        found = identify(int(said.stdout))
        assert found is not None
        made.append(found)
        return found

    yield start
    for each in made:
        if is_alive(each):
            os.kill(each.pid, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    """Whether it is. SIGSTOP counts once the process comes to it, which who sends it does not wait for."""
    while True:
        found = parse_process(pid, Path(f"/proc/{pid}/stat").read_text(), None, None)
        assert found is not None
        if "SigPnd:\t0000000000000000" in Path(f"/proc/{pid}/status").read_text() and found.state in ("T", "S"):
            return found.state == "T"
