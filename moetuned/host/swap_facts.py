"""What a swap plan needs to know of the machine: rights, RAM, the swaps that are on, the wished place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import msgspec

from moetuned.host.active_swaps import is_same_file, read_swaps
from moetuned.host.block_devices import under_file
from moetuned.host.fs import HostFS, RealFS, read_or_none
from moetuned.host.outside_sandbox import can_leave
from moetuned.host.swap_files import directory_problem
from moetuned.host.zram_devices import zram_refusal
from moetuned.parse.kernel_numbers import line_value
from moetuned.parse.meminfo import parse_meminfo
from moetuned.parse.mountinfo import mount_of, parse_mountinfo
from moetuned.schema.capability import Action
from moetuned.schema.swap import ActiveSwap, SwapFacts, SwapFileFacts

_REAL = RealFS()
_CAP_SYS_ADMIN = 21
# The first namespaces have numbers of their own (include/uapi/linux/nsfs.h, include/linux/proc_ns.h).
_FIRST_NAMESPACE = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}


def read_facts(
    path: str | None,
    *,
    state_directory: str,
    look_for_zram: bool = True,
    fs: HostFS = _REAL,
    readlink: Callable[[str], str] = os.readlink,
) -> SwapFacts:
    """All of it, for a swap file at `path` (None: no file is wished for). Never raises: what cannot be read is unknown.

    `state_directory` is made before anything else, so it need not exist yet.
    """
    refusal = rights_refusal(fs, readlink)
    try:
        active = read_swaps(fs)
    except OSError as error:
        active, refusal = (), refusal or f"/proc/swaps cannot be read: {error.strerror or error}"
    meminfo = parse_meminfo(read_or_none(fs, "/proc/meminfo"))
    return SwapFacts(
        memory_bytes=None if meminfo is None else meminfo.total_bytes,
        active=active,
        refusal=refusal,
        zram_refusal=zram_refusal(fs) if look_for_zram and refusal is None else None,
        file=None if path is None else _file_facts(path, active or (), state_directory, fs),
    )


def with_refused(facts: SwapFacts, refused: Mapping[Action, str]) -> SwapFacts:
    """The facts with what was refused when it was rehearsed."""
    file = facts.file
    if file is not None and Action.SWAP_FILE in refused:
        file = msgspec.structs.replace(file, problem=file.problem or refused[Action.SWAP_FILE])
    return msgspec.structs.replace(facts, file=file, zram_refusal=facts.zram_refusal or refused.get(Action.ZRAM))


def rights_refusal(fs: HostFS = _REAL, readlink: Callable[[str], str] = os.readlink) -> str | None:
    """Why this process could not swap anything on if it were root; None when it could.

    In a container it would be the host's swap, with files that the host does not see under this name.
    """
    for kind, first in _FIRST_NAMESPACE.items():
        try:
            if readlink(f"/proc/self/ns/{kind}") != first:
                return f"this is a container (a {kind} namespace of its own): swap is the host's matter"
        except OSError:
            continue  # a kernel without this kind of namespace
    said = line_value(read_or_none(fs, "/proc/self/status") or "", "CapEff", ":")
    try:
        able = said is None or bool(int(said, 16) >> _CAP_SYS_ADMIN & 1)
    except ValueError:
        able = True
    if not able and os.geteuid() == 0 and not can_leave():
        return "this process may not swap on or off (it has no CAP_SYS_ADMIN; a container or a service's limits?)"
    return None


def mount_point(path: str, fs: HostFS = _REAL) -> str | None:
    """Where the file system of `path` is mounted, whether the path exists or not; None when that cannot be told."""
    mount = mount_of(
        parse_mountinfo(read_or_none(fs, "/proc/self/mountinfo") or ""), os.path.realpath(os.path.dirname(path))
    )
    return None if mount is None else mount.point


def _file_facts(path: str, active: tuple[ActiveSwap, ...], state_directory: str, fs: HostFS) -> SwapFileFacts:
    directory = os.path.dirname(path)
    existing = directory
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    made_later = existing != directory and directory == state_directory
    devices = under_file(existing, fs)
    free = total = None
    try:
        room = os.statvfs(existing)
        free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    except OSError:
        pass
    return SwapFileFacts(
        filesystem=devices.filesystem,
        disks=devices.names,
        rotational=devices.rotational,
        virtual=devices.virtual,
        unknown=devices.unknown,
        free_bytes=free,
        total_bytes=total,
        problem=directory_problem(existing if made_later else directory),
        taken=os.path.lexists(path),
        active=any((swap.name == path and not swap.deleted) or is_same_file(swap, path) for swap in active),
    )
