"""A memory cgroup of the test's own, v1 or v2, whichever the machine has; gone afterwards."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
from collections.abc import Iterator

import pytest

from moetuned.host.cgroup import LIMIT_FILE, Hierarchy, add_process, processes_in, writable_hierarchy

_number = itertools.count()


def hierarchy() -> Hierarchy:
    """Where memory cgroups can be made; skips the test when there is no such place."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make a cgroup")
    found = writable_hierarchy()
    if found is None:
        pytest.skip("no writable memory cgroup hierarchy")
    return found


@contextlib.contextmanager
def own_cgroup(limit_bytes: int | None = None) -> Iterator[str]:
    """A new memory cgroup; what still runs in it at the end is killed."""
    root = hierarchy()
    directory = f"{root.directory}/moetuned-test-{os.getpid()}-{next(_number)}"
    os.mkdir(directory)
    try:
        if limit_bytes is not None:
            with open(f"{directory}/{LIMIT_FILE[root.version]}", "w", encoding="ascii") as file:
                file.write(str(limit_bytes))
        yield directory
    finally:
        for pid in processes_in(directory):
            handle = os.pidfd_open(pid)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], 60.0)
            os.close(handle)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            with contextlib.suppress(OSError):
                add_process(root.directory, pid)
        os.rmdir(directory)


def memory_stat(directory: str, name: str) -> int:
    """A number of memory.stat."""
    with open(f"{directory}/memory.stat", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.split()[0] == name)
