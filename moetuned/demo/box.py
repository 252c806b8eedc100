"""A memory cgroup for the demo, v1 or v2, whichever the machine has."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from moetuned.host.cgroup import LIMIT_FILE, Hierarchy, processes_in, writable_hierarchy

_EMPTY_SECONDS = 10.0


class BoxError(Exception):
    """No memory cgroup can be made here; the text says why."""


class Box:
    """A memory cgroup that was made for the demo."""

    def __init__(self, directory: str, version: int) -> None:
        self.directory = directory
        self.version = version

    def limit(self, size_bytes: int) -> None:
        """Set the limit; page cache above it is reclaimed at once. Raises OSError when it cannot be reached."""
        for _ in range(20):
            try:
                _write(f"{self.directory}/{LIMIT_FILE[self.version]}", str(size_bytes))
                return
            except OSError:
                time.sleep(0.1)  # EBUSY: pages were in use; the kernel wants to be asked again.
        _write(f"{self.directory}/{LIMIT_FILE[self.version]}", str(size_bytes))

    def oom_kills(self) -> int:
        """How many processes the OOM killer has ended in it."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        for line in _read(f"{self.directory}/{name}").splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
        return 0

    def processes(self) -> list[int]:
        """Pids in it."""
        return processes_in(self.directory)

    def remove(self) -> None:
        """End what still runs in it, then remove it. Raises OSError when it cannot be removed."""
        deadline = time.monotonic() + _EMPTY_SECONDS
        while (pids := self.processes()) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        while True:
            try:
                os.rmdir(self.directory)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def hierarchy() -> Hierarchy:
    """Where the cgroup is made. Raises BoxError."""
    if os.geteuid() != 0:
        raise BoxError("a memory cgroup needs root; run: sudo make demo")
    found = writable_hierarchy()
    if found is None:
        raise BoxError("there is no writable memory cgroup hierarchy here (in a container?)")
    return found


@contextlib.contextmanager
def box(limit_bytes: int) -> Iterator[Box]:
    """A new memory cgroup with this limit and without swap, removed afterwards. Raises BoxError."""
    root = hierarchy()
    directory = f"{root.directory}/moetuned-demo-{os.getpid()}"
    try:
        os.mkdir(directory)
    except OSError as error:
        raise BoxError(f"cannot make the cgroup {directory}: {error.strerror}") from error
    made = Box(directory, root.version)
    try:
        made.limit(limit_bytes)
        _without_swap(made)
        yield made
    finally:
        made.remove()


def _without_swap(made: Box) -> None:
    """Where the kernel can, keep the hog out of swap, so that the demo takes no longer than it must."""
    name, value = ("memory.swappiness", "0") if made.version == 1 else ("memory.swap.max", "0")
    with contextlib.suppress(OSError):
        _write(f"{made.directory}/{name}", value)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
