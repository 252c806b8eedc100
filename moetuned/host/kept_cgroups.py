"""Cgroups of this machine whose memory the kernel does not take (memory.min; cgroup v2), whoever set that."""

from __future__ import annotations

from moetuned.host.fs import HostFS, RealFS, read_or_none
from moetuned.parse.cgroup_memory import KEPT_FILES, parse_cgroup_memory
from moetuned.parse.kernel_numbers import single_number
from moetuned.parse.mountinfo import parse_mountinfo
from moetuned.schema.sample import KeptCgroup, KeptMemory

_REAL = RealFS()
_MOST = 64
_ALL = "max"
_EVERYTHING_BYTES = 1 << 60
_RECURSIVE = "memory_recursiveprot"
"""With it what a cgroup keeps is shared out among those below it that keep nothing themselves (cgroup-v2.rst). systemd mounts so."""


def kept_cgroups(fs: HostFS = _REAL) -> tuple[KeptCgroup, ...]:
    """The lowest ones that keep something, each with what those above it let it keep. Never raises; what cannot be read keeps nothing.

    What a cgroup keeps beyond those below it that keep something themselves does not count.
    """
    try:
        mounts = parse_mountinfo(fs.read_text("/proc/self/mountinfo"), "cgroup2")
    except OSError:
        return ()
    found: list[KeptCgroup] = []
    for mount in mounts[:1]:
        _below(fs, mount.point, _EVERYTHING_BYTES, found, recursive=_RECURSIVE in mount.options)
    return tuple(found)


def kept_memory(fs: HostFS = _REAL) -> tuple[KeptMemory, ...]:
    """The same with what they use now; those that cannot be read are left out."""
    found = []
    for one in kept_cgroups(fs):
        memory = parse_cgroup_memory(2, {name: read_or_none(fs, f"{one.directory}/{name}") for name in KEPT_FILES})
        if memory is not None:
            found.append(KeptMemory(one.directory, one.keeps_bytes, memory))
    return tuple(found)


def _below(fs: HostFS, directory: str, most_bytes: int, found: list[KeptCgroup], *, recursive: bool) -> None:
    for name in _names(fs, directory):
        child = f"{directory}/{name}"
        keeps = min(most_bytes, _min_bytes(fs, child))
        if keeps <= 0 or len(found) >= _MOST:
            continue
        before = len(found)
        _below(fs, child, keeps, found, recursive=recursive)
        if len(found) == before and (recursive or not _has_children(fs, child)):
            found.append(KeptCgroup(child, keeps))


def _min_bytes(fs: HostFS, directory: str) -> int:
    try:
        text = fs.read_text(f"{directory}/memory.min")
    except OSError:
        return 0
    return _EVERYTHING_BYTES if text.strip() == _ALL else single_number(text) or 0


def _has_children(fs: HostFS, directory: str) -> bool:
    return any(fs.exists(f"{directory}/{name}/cgroup.procs") for name in _names(fs, directory))


def _names(fs: HostFS, directory: str) -> list[str]:
    try:
        return fs.list_directory(directory)
    except OSError:
        return []
