"""Swap files: made so that the kernel takes them on ext4, xfs and btrfs, looked at, and removed.

A swap file may have no holes, and on btrfs no copy on write and no compression (swapon(8), btrfs(5) "SWAPFILE SUPPORT"). While
it is on, the kernel refuses to write, resize, rename or remove it (S_SWAPFILE), which also tells that it is on, whatever name
/proc/swaps has for it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator

from moetuned.host.durable_file import remove_durably, sync_directory
from moetuned.host.swap_signature import SwapError, read_head
from moetuned.parse.swap_header import swap_uuid
from moetuned.schema.swap import FileLook

_LONG = struct.calcsize("l")
# _IOR('f', 1, long) and _IOW('f', 2, long) of include/uapi/linux/fs.h; chattr uses them, too.
_GET_FLAGS = 0x80000000 | _LONG << 16 | ord("f") << 8 | 1
_SET_FLAGS = 0x40000000 | _LONG << 16 | ord("f") << 8 | 2
_NO_COPY_ON_WRITE, _COMPRESSED = 0x00800000, 0x00000004
_KEEP_SIZE = 1
_NO_REPLACE = 1
_AT_FDCWD = -100

_libc = ctypes.CDLL(None, use_errno=True)


def look_at_file(path: str) -> FileLook | None:
    """What is at `path`, links not followed; None when nothing is. Raises OSError."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return _look(status, None)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _look(os.fstat(descriptor), swap_uuid(read_head(descriptor)))
    finally:
        os.close(descriptor)


def create_file(path: str) -> FileLook:
    """Make an empty file that only root can read, where nothing is, and flush its name to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(os.path.dirname(path))
    return _look(status, None)


def fill_file(path: str, size_bytes: int, *, copy_on_write: bool) -> None:
    """Give an empty file of ours all its blocks. `copy_on_write`: the file system does that (btrfs) and must not here.

    Raises OSError (ENOSPC), SwapError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if copy_on_write:
            _no_copy_on_write(descriptor)
        os.posix_fallocate(descriptor, 0, size_bytes)
        os.fsync(descriptor)
        status = os.fstat(descriptor)
        if status.st_size != size_bytes or status.st_blocks * 512 < size_bytes:
            raise SwapError(f"the file system gave {path} fewer blocks than it needs (holes, or compression)")
    finally:
        os.close(descriptor)


def flush_file(path: str) -> None:
    """Flush what was written to the file to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move_into_place(temporary: str, path: str) -> None:
    """Rename `temporary` to `path` unless something is there (EEXIST), and flush it to the disk. Raises OSError."""
    result = _libc.renameat2(
        _AT_FDCWD, os.fsencode(temporary), _AT_FDCWD, os.fsencode(path), ctypes.c_uint(_NO_REPLACE)
    )
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    sync_directory(os.path.dirname(path))


def remove_file(path: str) -> None:
    """Remove the file and flush that to the disk; no error when there is none. Raises OSError (EPERM while it is on)."""
    remove_durably(path)


def is_swapped_on(path: str) -> bool:
    """Whether the file at `path`, one of ours, is a swap in use: the kernel then refuses to touch its blocks (ETXTBSY).

    Changes nothing: the blocks asked for are there already. Raises OSError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        result = _fallocate(descriptor, _KEEP_SIZE, 0, 4096)
        number = ctypes.get_errno()
    finally:
        os.close(descriptor)
    if result != 0 and number not in (errno.ETXTBSY, errno.ENOSPC):
        raise OSError(number, os.strerror(number), path)
    return bool(result != 0 and number == errno.ETXTBSY)


def directory_problem(directory: str) -> str | None:
    """Why no swap file may be made in `directory`, one sentence with the cure; None when it may.

    Whoever can write there, or rename a directory above it, could put another file in place of ours.
    """
    if not os.path.isdir(directory):
        return f"the directory {directory} does not exist; make it first"
    for number, each in enumerate(_upwards(directory)):
        try:
            status = os.stat(each)
        except OSError as error:
            return f"{each} cannot be looked at: {error.strerror}"
        if status.st_uid != 0:
            return f"{each} belongs to user {status.st_uid}, who could replace the swap file: use a directory of root"
        writable = status.st_mode & (stat.S_IWOTH | (stat.S_IWGRP if status.st_gid != 0 else 0))
        if writable and (number == 0 or not status.st_mode & stat.S_ISVTX):
            return f"{each} may be written by others than root: run chmod go-w {each} or use another directory"
    return None


def _upwards(directory: str) -> Iterator[str]:
    """The directory and all above it, as written and with links resolved."""
    for name in dict.fromkeys((os.path.realpath(directory), os.path.abspath(directory))):
        yield name
        while name != "/":
            name = os.path.dirname(name)
            yield name


def _look(status: os.stat_result, uuid: str | None) -> FileLook:
    return FileLook(
        inode=status.st_ino,
        size_bytes=status.st_size,
        mode=stat.S_IMODE(status.st_mode),
        owner=status.st_uid,
        regular=stat.S_ISREG(status.st_mode),
        uuid=uuid,
    )


def _no_copy_on_write(descriptor: int) -> None:
    """Only an empty file takes the attribute (chattr(1), C)."""
    flags = bytearray(_LONG)
    fcntl.ioctl(descriptor, _GET_FLAGS, flags)
    (value,) = struct.unpack("=i", flags[:4])
    wanted = (value | _NO_COPY_ON_WRITE) & ~_COMPRESSED
    # The kernel reads and writes an int, whatever the number's name says.
    fcntl.ioctl(descriptor, _SET_FLAGS, bytearray(struct.pack("=i", wanted).ljust(_LONG, b"\0")))
    flags = bytearray(_LONG)
    fcntl.ioctl(descriptor, _GET_FLAGS, flags)
    if not struct.unpack("=i", flags[:4])[0] & _NO_COPY_ON_WRITE:
        raise SwapError("the file system did not take the attribute that turns copy on write off")


def _fallocate(descriptor: int, mode: int, offset: int, length: int) -> int:
    function = getattr(_libc, "fallocate64", None) or _libc.fallocate
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return int(function(descriptor, mode, offset, length))
