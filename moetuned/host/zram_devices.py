"""zram devices: made, set up, looked at, removed, and the module they need (Documentation/admin-guide/blockdev/zram.rst)."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from moetuned.host.fs import HostFS, RealFS
from moetuned.host.program_search import find_program
from moetuned.host.swap_signature import SwapError, read_head
from moetuned.host.system_program import run_program
from moetuned.parse.kernel_numbers import single_number
from moetuned.parse.swap_header import is_blank, swap_uuid
from moetuned.parse.tunable_text import parse_choices
from moetuned.schema.swap import ZramLook

_REAL = RealFS()
_CONTROL = "/sys/class/zram-control"
_ALGORITHMS = ("zstd", "lz4")
"""Best first: zstd packs a third more than lz4, lz4 is faster than the kernel's default lzo-rle."""
_BUSY_TRIES, _BUSY_SECONDS = 40, 0.05


def zram_refusal(fs: HostFS = _REAL) -> str | None:
    """Why there can be no zram device on this machine; None when there can be one."""
    if zram_loaded(fs):
        return None
    try:
        run_program("modprobe", ("--dry-run", "--quiet", "zram"), "kmod", outside=True)
    except OSError as error:
        return f"this kernel has no zram: {error}"
    return None


def zram_loaded(fs: HostFS = _REAL) -> bool:
    """Whether the kernel has zram now, built in or as a module that is loaded."""
    return fs.exists(f"{_CONTROL}/hot_add")


def load_zram() -> None:
    """Load the module with no device. Raises OSError."""
    run_program("modprobe", ("zram", "num_devices=0"), "kmod", outside=True)


def unload_zram() -> None:
    """Remove the module; the kernel refuses while it is in use. Raises OSError."""
    if find_program("modprobe") is not None:
        run_program("modprobe", ("--remove", "zram"), "kmod", outside=True)


def zram_numbers(fs: HostFS = _REAL) -> tuple[int, ...]:
    """Numbers of the zram devices there are, in order. Raises OSError."""
    names = [name.removeprefix("zram") for name in fs.list_directory("/sys/block") if name.startswith("zram")]
    return tuple(sorted(int(name) for name in names if name.isascii() and name.isdigit()))


def add_zram(fs: HostFS = _REAL) -> int:
    """Make one more device and give its number: reading the file is what makes it. Raises OSError."""
    number = single_number(fs.read_text(f"{_CONTROL}/hot_add", 32))
    if number is None:
        raise SwapError(f"{_CONTROL}/hot_add did not give a number")
    return number


def look_at_zram(number: int, fs: HostFS = _REAL) -> ZramLook | None:
    """A device as it is; None when there is none of this number. Raises OSError."""
    directory = f"/sys/block/zram{number}"
    try:
        size = single_number(fs.read_text(f"{directory}/disksize", 64))
    except FileNotFoundError:
        return None
    try:
        sequence = single_number(fs.read_text(f"{directory}/diskseq", 64))
    except FileNotFoundError:
        sequence = None  # before Linux 5.15
    if not size:
        return ZramLook(number, sequence)
    descriptor = os.open(zram_path(number), os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = read_head(descriptor)
    finally:
        os.close(descriptor)
    return ZramLook(number, sequence, size, swap_uuid(head), is_blank(head))


def set_up_zram(number: int, size_bytes: int, fs: HostFS = _REAL) -> None:
    """Choose the best compression the kernel has and give the device its size. Raises OSError (EBUSY: it has one already)."""
    directory = f"/sys/block/zram{number}"
    choices = parse_choices(fs.read_text(f"{directory}/comp_algorithm", 4096))
    for algorithm in _ALGORITHMS:
        if algorithm in choices:
            fs.write_text(f"{directory}/comp_algorithm", algorithm)
            break
    fs.write_text(f"{directory}/disksize", str(size_bytes))


def remove_zram(number: int, fs: HostFS = _REAL) -> None:
    """Free what the device holds and remove it; no error when there is none. Raises OSError (EBUSY while it is in use).

    What looks at new devices (udev) may hold it open for a moment, so a busy one is tried for two seconds.
    """
    _while_busy(lambda: fs.write_text(f"/sys/block/zram{number}/reset", "1"))
    _while_busy(lambda: fs.write_text(f"{_CONTROL}/hot_remove", str(number)))


def zram_path(number: int) -> str:
    """The device's node."""
    return f"/dev/zram{number}"


def _while_busy(write: Callable[[], None]) -> None:
    for again in range(_BUSY_TRIES - 1, -1, -1):
        try:
            write()
            return
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                return
            if error.errno != errno.EBUSY or again == 0:
                raise
        time.sleep(_BUSY_SECONDS)
