"""The swaps that are on, and what is under each of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from moetuned.host.block_devices import FileDevices, under_file
from moetuned.host.fs import HostFS, RealFS, read_or_none
from moetuned.parse.swaps import parse_swaps, zram_number
from moetuned.schema.swap import ActiveSwap, SwapBacking

_REAL = RealFS()
_SWAPS = "/proc/swaps"
_ZSWAP = "/sys/module/zswap/parameters/enabled"


def read_swaps(fs: HostFS = _REAL) -> tuple[ActiveSwap, ...] | None:
    """The swaps that are on; None where the kernel has no swap. Raises OSError for anything else."""
    try:
        return parse_swaps(fs.read_text(_SWAPS))
    except FileNotFoundError:
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
    return {"Y": True, "1": True, "N": False, "0": False}.get((read_or_none(fs, _ZSWAP) or "").strip())


def is_same_file(swap: ActiveSwap, path: str) -> bool:
    """Whether the swap is the file at `path`, as far as its name can be looked up from here.

    One that was deleted while it was on is no file at any path any more, whatever has its name now.
    """
    try:
        return swap.kind == "file" and not swap.deleted and os.path.samefile(swap.name, path)
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
