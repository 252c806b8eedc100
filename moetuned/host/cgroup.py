"""Memory cgroups of processes, v1, v2 and hybrid (Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from moetuned.host.fs import HostFS, RealFS
from moetuned.parse.cgroup_memory import LIMIT_FILES, is_limit
from moetuned.parse.mountinfo import parse_mountinfo
from moetuned.parse.process_cgroup import memory_cgroup_place

_REAL = RealFS()
_USAGE_FILE = {1: "memory.usage_in_bytes", 2: "memory.current"}
CGROUP_ROOT = "/sys/fs/cgroup"
LIMIT_FILE = {1: "memory.limit_in_bytes", 2: "memory.max"}
JOIN_FAILED_CODE = 125
_JOIN_SCRIPT = 'echo $$ > "$1"/cgroup.procs || exit 125; shift; exec "$@"'


class MemoryCgroup(msgspec.Struct, frozen=True):
    """The cgroup that a process's memory is charged to.

    `directory` None: the root cgroup, or unknown; then `unknown` says why in one sentence. The root that is seen may be a
    container's own cgroup (cgroup_namespaces(7)): `seen_root` is its directory then. It counts memory as any other does, but
    nothing can be told to join it. `limited_above`: those above that have a limit of their own, the nearest first.
    """

    directory: str | None = None
    version: int | None = None
    unknown: str | None = None
    limited_above: tuple[str, ...] = ()
    seen_root: str | None = None

    @property
    def counted_in(self) -> str | None:
        """The directory whose files tell what the process's memory cgroup uses; None: none, or unknown."""
        return self.directory or self.seen_root


class Hierarchy(msgspec.Struct, frozen=True):
    """A mounted cgroup hierarchy in which memory cgroups can be made: its root directory and its version (1 or 2)."""

    directory: str
    version: int


def memory_cgroup(pid: int, fs: HostFS = _REAL) -> MemoryCgroup:
    """Memory cgroup of process `pid`. Never raises; what cannot be read is unknown.

    On v2 a cgroup without the memory controller is charged to the nearest one above that has it.
    """
    try:
        own = fs.read_text(f"/proc/{pid}/cgroup")
        mounts = parse_mountinfo(fs.read_text("/proc/self/mountinfo"), "cgroup")
    except OSError as error:
        return MemoryCgroup(unknown=f"cannot read the cgroup of process {pid}: {error.strerror}")
    place = memory_cgroup_place(own, mounts)
    if isinstance(place, str):
        return MemoryCgroup(unknown=place)
    parts = place.relative.split("/") if place.relative else []
    while parts:
        directory = "/".join((place.mount_point, *parts))
        if fs.exists(f"{directory}/{_USAGE_FILE[place.version]}"):
            above = [f"{place.mount_point}/{'/'.join(parts[:count])}" for count in range(len(parts) - 1, 0, -1)]
            limited = tuple(one for one in (*above, place.mount_point) if has_limit(fs, one, place.version))
            return MemoryCgroup(directory, place.version, limited_above=limited)
        if place.version == 1:
            return MemoryCgroup(unknown=f"{directory} has no {_USAGE_FILE[1]}")
        parts.pop()
    return MemoryCgroup(version=place.version, seen_root=_seen_root(fs, place.mount_point, place.version))


def has_limit(fs: HostFS, directory: str, version: int) -> bool:
    """Whether a memory cgroup has a limit of its own; one that cannot be read has none."""
    for name in LIMIT_FILES[version]:
        try:
            if is_limit(fs.read_text(f"{directory}/{name}")):
                return True
        except OSError:
            continue
    return False


def _seen_root(fs: HostFS, mount_point: str, version: int) -> str | None:
    """The root of the hierarchy where it is a container's: the machine's own has no usage on v2 and no limit on v1."""
    if version == 1:
        return mount_point if has_limit(fs, mount_point, 1) else None
    return mount_point if fs.exists(f"{mount_point}/{_USAGE_FILE[2]}") else None


def writable_hierarchy(fs: HostFS = _REAL) -> Hierarchy | None:
    """Where this process may make memory cgroups; None when there is no such place (not root, or a container).

    A v1 memory controller wins, as in `memory_cgroup`. On v2 the root must give the controller to its children.
    """
    try:
        mounts = parse_mountinfo(fs.read_text("/proc/self/mountinfo"))
    except OSError:
        return None
    for mount in mounts:
        if mount.kind == "cgroup" and "memory" in mount.options and os.access(mount.point, os.W_OK):
            return Hierarchy(mount.point, 1)
    for mount in mounts:
        if mount.kind == "cgroup2" and os.access(mount.point, os.W_OK) and "memory" in _given_on(mount.point, fs):
            return Hierarchy(mount.point, 2)
    return None


def _given_on(directory: str, fs: HostFS) -> list[str]:
    """Controllers that a v2 cgroup gives to its children."""
    try:
        return fs.read_text(f"{directory}/cgroup.subtree_control").split()
    except OSError:
        return []


def check_directory(directory: str) -> str | None:
    """Why processes cannot be put into the cgroup `directory`, one sentence with the path; None when they can."""
    real = os.path.realpath(directory)
    if not os.path.isabs(directory) or not real.startswith(CGROUP_ROOT + "/"):
        return f"{directory} is no directory under {CGROUP_ROOT}"
    if not os.path.isdir(real):
        return f"the cgroup {directory} does not exist; create it first"
    if not os.path.exists(f"{real}/cgroup.procs"):
        return f"{directory} is no cgroup: it has no cgroup.procs"
    if not any(os.path.exists(f"{real}/{name}") for name in _USAGE_FILE.values()):
        return f"{directory} is no memory cgroup: it has neither memory.current nor memory.usage_in_bytes"
    return None


def add_process(directory: str, pid: int) -> None:
    """Move a process (0: the caller) with all its threads into a cgroup. Memory it has stays charged where it was.

    Raises OSError, e.g. EBUSY for a v2 cgroup that has controllers enabled for its children.
    """
    descriptor = os.open(f"{directory}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(pid).encode())
    finally:
        os.close(descriptor)


def processes_in(directory: str) -> list[int]:
    """Pids of the processes in a cgroup, without those in cgroups below it. Raises OSError."""
    with open(f"{directory}/cgroup.procs", encoding="ascii") as file:
        return [int(line) for line in file.read().split()]


def joining(directory: str, command: Sequence[str]) -> list[str]:
    """`command` so that it joins a cgroup before its program runs, and all its memory is charged there.

    It exits with JOIN_FAILED_CODE when it cannot. The shell gets a fixed script; directory and command are arguments to it.
    """
    return ["/bin/sh", "-c", _JOIN_SCRIPT, "sh", directory, *command]
