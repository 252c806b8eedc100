"""A memory cgroup of the test's own, v1 or v2, whichever the machine has; gone afterwards."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator

import pytest

from moetuned.host.cgroup import add_process
from moetuned.parse.mountinfo import parse_mountinfo

_number = itertools.count()


def hierarchy() -> tuple[str, int]:
    """Directory of the mounted hierarchy with the memory controller, and its version; skips the test when there is none."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make a cgroup")
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = parse_mountinfo(file.read())
    for mount in mounts:
        if mount.kind == "cgroup" and "memory" in mount.options and os.access(mount.point, os.W_OK):
            return mount.point, 1
    for mount in mounts:
        control = f"{mount.point}/cgroup.subtree_control"
        if mount.kind == "cgroup2" and os.access(control, os.W_OK):
            with open(control, encoding="ascii") as file:
                if "memory" in file.read().split():
                    return mount.point, 2
    pytest.skip("no writable memory cgroup hierarchy")


@contextlib.contextmanager
def own_cgroup(limit_bytes: int | None = None) -> Iterator[str]:
    """A new memory cgroup; what still runs in it at the end is killed."""
    root, version = hierarchy()
    directory = f"{root}/moetuned-test-{os.getpid()}-{next(_number)}"
    os.mkdir(directory)
    try:
        if limit_bytes is not None:
            name = "memory.limit_in_bytes" if version == 1 else "memory.max"
            with open(f"{directory}/{name}", "w", encoding="ascii") as file:
                file.write(str(limit_bytes))
        yield directory
    finally:
        for pid in processes_in(directory):
            handle = os.pidfd_open(pid)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            with contextlib.suppress(OSError):
                add_process(root, pid)
        os.rmdir(directory)


def processes_in(directory: str) -> list[int]:
    """Pids of the cgroup."""
    with open(f"{directory}/cgroup.procs", encoding="ascii") as file:
        return [int(line) for line in file.read().split()]


def memory_stat(directory: str, name: str) -> int:
    """A number of memory.stat."""
    with open(f"{directory}/memory.stat", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.split()[0] == name)
