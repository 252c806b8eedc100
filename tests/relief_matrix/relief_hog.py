"""Programs that take memory: the demo's hog, in a cgroup of the caller's choice."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from relief_place import Place

from moetuned.host.cgroup import joining


class Hog:
    """Takes this much at this rate, then keeps it."""

    def __init__(self, place: Place, size_bytes: int, bytes_a_second: int) -> None:
        command = [sys.executable, "-m", "moetuned.demo.hog", str(size_bytes), str(bytes_a_second)]
        self.seconds = size_bytes / bytes_a_second
        self._process = subprocess.Popen(joining(place.directory, command), stdin=subprocess.DEVNULL)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def hog(place: Place, size_bytes: int, bytes_a_second: int) -> Iterator[Hog]:
    """Ended whatever happens."""
    found = Hog(place, size_bytes, bytes_a_second)
    try:
        yield found
    finally:
        found.end()
