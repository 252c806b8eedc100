"""Memory cgroups for a scenario of relief, v1 or v2, whichever the machine has: made here, watched, and removed again."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from moetuned.host.cgroup import LIMIT_FILE, processes_in, writable_hierarchy

_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
_EMPTY_SECONDS = 10.0
_number = itertools.count()


class NoPlace(Exception):  # noqa: N818  a fact, not a fault
    """No memory cgroup can be made here; the text says why."""


class Place:
    """A memory cgroup that was made for one scenario."""

    def __init__(self, directory: str, version: int) -> None:
        self.directory = directory
        self.version = version

    def limit(self, size_bytes: int) -> None:
        """Its hard limit. Nothing is swapped out of it, whatever swap the machine has."""
        self._write(LIMIT_FILE[self.version], str(size_bytes))
        with contextlib.suppress(OSError):
            if self.version == 1:
                self._write("memory.swappiness", "0")
            else:
                self._write("memory.swap.max", "0")

    def usage_bytes(self) -> int:
        return int(self._read(_USAGE[self.version]))

    def oom_kills(self) -> int:
        """Processes that the OOM killer has ended in it, or below it."""
        return self._event("oom_kill")

    def failures(self) -> int:
        """How often an allocation came up against its limit: not yet a fault, page cache is reclaimed then."""
        return int(self._read("memory.failcnt")) if self.version == 1 else self._event("max")

    def processes(self) -> list[int]:
        return processes_in(self.directory)

    @contextlib.contextmanager
    def below(self, name: str, limit_bytes: int | None = None) -> Iterator[Place]:
        """A cgroup below it, whose memory counts against its limit as well."""
        if self.version == 2:
            self._write("cgroup.subtree_control", "+memory")
        with _made(f"{self.directory}/{name}", self.version) as place:
            if limit_bytes is not None:
                place.limit(limit_bytes)
            yield place

    def _event(self, name: str) -> int:
        text = self._read("memory.oom_control" if self.version == 1 else "memory.events")
        found = (line.split() for line in text.splitlines())
        return next((int(value) for key, value in found if key == name), 0)

    def _read(self, name: str) -> str:
        return Path(self.directory, name).read_text(encoding="ascii")

    def _write(self, name: str, text: str) -> None:
        Path(self.directory, name).write_text(text, encoding="ascii")


@contextlib.contextmanager
def place(limit_bytes: int | None = None) -> Iterator[Place]:
    """A new memory cgroup; what still runs in it at the end is killed. Raises NoPlace."""
    if os.geteuid() != 0:
        raise NoPlace("needs root to make a memory cgroup")
    root = writable_hierarchy()
    if root is None:
        raise NoPlace("no writable memory cgroup hierarchy")
    with _made(f"{root.directory}/moetuned-relief-{os.getpid()}-{next(_number)}", root.version) as made:
        if limit_bytes is not None:
            made.limit(limit_bytes)
        yield made


@contextlib.contextmanager
def _made(directory: str, version: int) -> Iterator[Place]:
    os.mkdir(directory)
    made = Place(directory, version)
    if version == 1 and os.path.exists(f"{directory}/memory.use_hierarchy"):
        with contextlib.suppress(OSError):
            Path(directory, "memory.use_hierarchy").write_text("1", encoding="ascii")
    try:
        yield made
    finally:
        _remove(made)


def _remove(made: Place) -> None:
    deadline = time.monotonic() + _EMPTY_SECONDS
    while True:
        for pid in made.processes():
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                os.close(handle)
        try:
            os.rmdir(made.directory)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
