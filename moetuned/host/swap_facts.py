"""What a swap plan needs to know of the machine: rights, RAM, the swaps that are on and what is under them, the wished place."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from moetuned.host.block_devices import FileDevices, under_file
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.swap_devices import zram_refusal
from moetuned.host.swap_files import directory_problem
from moetuned.parse.kernel_numbers import line_value
from moetuned.parse.meminfo import parse_meminfo
from moetuned.parse.mountinfo import mount_of, parse_mountinfo
from moetuned.parse.swaps import parse_swaps, zram_number
from moetuned.schema.swap import ActiveSwap, SwapBacking, SwapFacts, SwapFileFacts

_REAL = RealFS()
_SWAPS = "/proc/swaps"
_ZSWAP = "/sys/module/zswap/parameters/enabled"
_CAP_SYS_ADMIN = 21
# The first namespaces have numbers of their own (include/uapi/linux/nsfs.h, include/linux/proc_ns.h).
_FIRST_NAMESPACE = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}


def read_swaps(fs: HostFS = _REAL) -> tuple[ActiveSwap, ...] | None:
    """The swaps that are on; None where the kernel has no swap. Raises OSError for anything else."""
    try:
        return parse_swaps(fs.read_text(_SWAPS))
    except FileNotFoundError:
        return None


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
        active, refusal = (), refusal or f"{_SWAPS} cannot be read: {error.strerror or error}"
    meminfo = parse_meminfo(_text(fs, "/proc/meminfo"))
    return SwapFacts(
        memory_bytes=None if meminfo is None else meminfo.total_bytes,
        active=active,
        backings=read_backings(active or (), fs),
        zswap=read_zswap(fs),
        refusal=refusal,
        zram_refusal=zram_refusal(fs) if look_for_zram and refusal is None else None,
        file=None if path is None else _file_facts(path, active or (), state_directory, fs),
    )


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
    said = line_value(_text(fs, "/proc/self/status") or "", "CapEff", ":")
    try:
        able = said is None or bool(int(said, 16) >> _CAP_SYS_ADMIN & 1)
    except ValueError:
        able = True
    if not able and os.geteuid() == 0:
        return "this process may not swap on or off (it has no CAP_SYS_ADMIN; a container or a service's limits?)"
    return None


def node_number(path: str) -> tuple[int, int]:
    """Major and minor number of a device itself, or of the file system that a file is on. Raises OSError."""
    status = os.stat(path)
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    return os.major(number), os.minor(number)


def read_backings(
    active: tuple[ActiveSwap, ...], fs: HostFS = _REAL, device_of: Callable[[str], tuple[int, int]] = node_number
) -> tuple[SwapBacking, ...]:
    """What is under each swap that is on, in their order. `device_of` gives the number of a device or of a file's."""
    return tuple(_backing(swap, fs, device_of) for swap in active)


def read_zswap(fs: HostFS = _REAL) -> bool | None:
    """Whether zswap is on; None where the kernel has none or does not say."""
    return {"Y": True, "1": True, "N": False, "0": False}.get((_text(fs, _ZSWAP) or "").strip())


def mount_point(path: str, fs: HostFS = _REAL) -> str | None:
    """Where the file system of `path` is mounted, whether the path exists or not; None when that cannot be told."""
    mount = mount_of(parse_mountinfo(_text(fs, "/proc/self/mountinfo") or ""), os.path.realpath(os.path.dirname(path)))
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
        active=any(swap.name == path or is_same_file(swap, path) for swap in active),
    )


def is_same_file(swap: ActiveSwap, path: str) -> bool:
    """Whether the swap's name, as far as it can be looked up from here, is the file at `path`."""
    try:
        return swap.kind == "file" and os.path.samefile(swap.name, path)
    except OSError:
        return False


def _backing(swap: ActiveSwap, fs: HostFS, device_of: Callable[[str], tuple[int, int]]) -> SwapBacking:
    if zram_number(swap) is not None:
        return SwapBacking(swap.name, zram=True)
    devices = under_file(swap.name, fs, device_of)
    rotational = devices.rotational
    unknown = None if rotational is not None else devices.unknown or _why_unknown(devices)
    return SwapBacking(swap.name, rotational=rotational, unknown=unknown)


def _why_unknown(devices: FileDevices) -> str:
    if devices.virtual:
        return f"{', '.join(devices.names)} is a virtual disk, which does not tell what it is on"
    return "its disk does not say whether it turns"


def _text(fs: HostFS, path: str) -> str | None:
    try:
        return fs.read_text(path)
    except OSError:
        return None
