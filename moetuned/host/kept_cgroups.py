"""Cgroups of this machine whose memory the kernel does not take (memory.min; cgroup v2), whoever set that."""

from __future__ import annotations

from collections.abc import Iterable

from moetuned.host.fs import HostFS, RealFS, read_or_none
from moetuned.parse.cgroup_memory import KEPT_FILES, parse_kept_memory
from moetuned.parse.kernel_numbers import single_number
from moetuned.parse.mountinfo import parse_mountinfo
from moetuned.schema.sample import KeptCgroup, KeptMemory

_REAL = RealFS()
_MOST = 64
_ALL = "max"
_EVERYTHING_BYTES = 1 << 60
_RECURSIVE = "memory_recursiveprot"
"""With it what a cgroup keeps is shared out among those below it that keep nothing themselves (cgroup-v2.rst). systemd mounts so."""


def kept_cgroups(fs: HostFS = _REAL, limited: Iterable[str] = ()) -> tuple[KeptCgroup, ...]:
    """Those that keep something when memory is taken for the machine, each above those in it. Never raises; what cannot be read keeps nothing.

    `limited`: directories of cgroups that may have a limit: those in them that keep something when memory is taken for that.
    """
    try:
        mounts = parse_mountinfo(fs.read_text("/proc/self/mountinfo"), "cgroup2")
    except OSError:
        return ()
    found: dict[str, KeptCgroup] = {}
    for mount in mounts[:1]:
        recursive = _RECURSIVE in mount.options
        _below(fs, mount.point, found, recursive=recursive, on_machine=True)
        for one in sorted(set(limited)):
            if one.startswith(f"{mount.point}/"):
                _below(fs, one, found, recursive=recursive, on_machine=False)
    return tuple(found.values())


def kept_memory(fs: HostFS = _REAL, limited: Iterable[str] = ()) -> tuple[KeptMemory, ...]:
    """The same with what they use now; those that cannot be read are left out."""
    found = (
        parse_kept_memory(one, {name: read_or_none(fs, f"{one.directory}/{name}") for name in KEPT_FILES})
        for one in kept_cgroups(fs, limited)
    )
    return tuple(one for one in found if one is not None)


def _below(fs: HostFS, directory: str, found: dict[str, KeptCgroup], *, recursive: bool, on_machine: bool) -> None:
    for name in _names(fs, directory):
        child = f"{directory}/{name}"
        keeps = 0 if child in found else _min_bytes(fs, child)
        if keeps <= 0 or len(found) >= _MOST:
            continue
        shares = recursive or not _has_children(fs, child)
        found[child] = KeptCgroup(child, keeps, on_machine, shares)
        _below(fs, child, found, recursive=recursive, on_machine=on_machine)


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
