"""What a demo that was killed (kill -9, out of memory) left behind: found by the pid in the names, and taken back."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

from moetuned.demo.box import Box
from moetuned.host.cgroup import Hierarchy

PREFIX = "moetuned-demo-"
_LOCK = "\0moetuned-demo"  # an abstract socket: let go of by the kernel, leaves no file


class Busy(Exception):  # noqa: N818  a fact, not a fault
    """Another demo runs on this machine."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Only one demo at a time may set the machine up. Raises Busy."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        try:
            lock.bind(_LOCK)
        except OSError as error:
            raise Busy("another demo runs on this machine; wait until it has ended") from error
        yield


def directories(parent: str) -> list[str]:
    """Directories in `parent` that demos of this user made and that do not run any more."""
    return [
        path for path in _of_dead_demos(parent) if os.lstat(path).st_uid == os.geteuid() and not os.path.islink(path)
    ]


def cgroups(hierarchy: Hierarchy) -> list[str]:
    """The same for memory cgroups."""
    return list(_of_dead_demos(hierarchy.directory))


def take_back(parent: str, hierarchy: Hierarchy | None) -> list[str]:
    """Remove what dead demos left, with the processes in their cgroups; what was removed. Raises OSError."""
    removed = []
    for cgroup in [] if hierarchy is None else cgroups(hierarchy):
        assert hierarchy is not None
        Box(cgroup, hierarchy.version).remove()
        removed.append(cgroup)
    for directory in directories(parent):
        shutil.rmtree(directory)
        removed.append(directory)
    return removed


def give_settings_back() -> None:
    """Roll back what a daemon that was killed has left set, as a user would. Raises ValueError."""
    command = [sys.executable, "-c", "from moetuned.cli.main import main; main()", "tune", "rollback"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(
            f"settings that a killed moetuned left could not all be given back; see: moetunectl tune rollback\n"
            f"{done.stdout}{done.stderr}".rstrip()
        )


def _of_dead_demos(parent: str) -> Iterator[str]:
    for name in sorted(os.listdir(parent)):
        pid = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and pid.isascii() and pid.isdecimal() and _is_gone(int(pid)):
            path = os.path.join(parent, name)
            if os.path.isdir(path):
                yield path


def _is_gone(pid: int) -> bool:
    return pid == os.getpid() or not os.path.exists(f"/proc/{pid}")
