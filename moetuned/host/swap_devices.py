"""Swapping on and off (swapon(2)), and zram devices (Documentation/admin-guide/blockdev/zram.rst)."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable

from moetuned.host.fs import HostFS, RealFS
from moetuned.host.spawn import child_environment
from moetuned.host.swap_signature import SwapError, find_program, read_head, run_program
from moetuned.parse.kernel_numbers import single_number
from moetuned.parse.swap_header import is_blank, swap_uuid
from moetuned.parse.tunable_text import parse_choices
from moetuned.schema.swap import HIGHEST_PRIORITY, ZramLook

Progress = Callable[[int], None]
"""Called about once a second with the bytes that are still to be read back."""

_REAL = RealFS()
_CONTROL = "/sys/class/zram-control"
_PREFER_FLAG = 0x8000
_ALGORITHMS = ("zstd", "lz4")
"""Best first: zstd packs a third more than lz4, lz4 is faster than the kernel's default lzo-rle."""
_BUSY_TRIES, _BUSY_SECONDS = 40, 0.05
_POLL_SECONDS = 1.0
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from moetuned.host.swap_off_process import main; sys.exit(main())"
)

_libc = ctypes.CDLL(None, use_errno=True)


def swap_on(path: str, priority: int | None) -> None:
    """Swap on a file or device with a swap signature; `priority` None: below all others. Raises OSError as the kernel answers."""
    if priority is not None and not 0 <= priority <= HIGHEST_PRIORITY:
        raise ValueError(f"{priority} is no priority")
    flags = 0 if priority is None else _PREFER_FLAG | priority
    if _libc.swapon(os.fsencode(path), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def swap_off_slowly(
    path: str,
    watch: Callable[[], int | None] = lambda: None,
    progress: Progress | None = None,
    patience_seconds: float | None = None,
) -> None:
    """Swap off; everything it holds is read back into memory first, which may take minutes.

    In a process of its own (see `swap_off_process`). `watch` is called about once a second and gives the bytes still to be read
    back, for `progress`. After `patience_seconds`, or when `watch` or anything else raises, that process is killed and the swap
    stays on. Raises OSError as the kernel answers (EINVAL: it is not on; ENOMEM), ETIMEDOUT.
    """
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    child = subprocess.Popen(
        (sys.executable, "-I", "-S", "-c", _START, package, str(os.getpid()), path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=child_environment(os.environ, {}),
        cwd="/",
    )
    began = time.monotonic()
    try:
        while True:
            try:
                output, _ = child.communicate(timeout=_POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                left = watch()
                if progress is not None and left is not None:
                    progress(left)
                if patience_seconds is not None and time.monotonic() - began >= patience_seconds:
                    raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path) from None
    finally:
        if child.returncode is None:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()
    if child.returncode != 0:
        # Killed from outside, by the OOM killer most likely: the kernel swaps on again what was half off.
        raise SwapError(errno.ENOMEM, "swapping off was ended from outside, by the OOM killer most likely", path)
    number = single_number(output.decode("ascii", "replace"))
    if number != 0:
        raise OSError(number or errno.EIO, os.strerror(number or errno.EIO), path)


def zram_refusal(fs: HostFS = _REAL) -> str | None:
    """Why there can be no zram device on this machine; None when there can be one."""
    if fs.exists(f"{_CONTROL}/hot_add"):
        return None
    try:
        run_program("modprobe", ("--dry-run", "--quiet", "zram"), "kmod")
    except OSError as error:
        return f"this kernel has no zram: {error}"
    return None


def zram_loaded(fs: HostFS = _REAL) -> bool:
    """Whether the kernel has zram now, built in or as a module that is loaded."""
    return fs.exists(f"{_CONTROL}/hot_add")


def load_zram() -> None:
    """Load the module with no device. Raises SwapError."""
    run_program("modprobe", ("zram", "num_devices=0"), "kmod")


def unload_zram() -> None:
    """Remove the module; the kernel refuses while it is in use. Raises SwapError."""
    if find_program("modprobe") is not None:
        run_program("modprobe", ("--remove", "zram"), "kmod")


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
