"""Maps a range of a file and locks it in memory. Imports almost nothing: it runs inside a backend's cgroup.

The order matters. mlock2(MLOCK_ONFAULT) first locks what is resident and marks the rest, so that a page that comes in is locked as it
comes (mm/mlock.c); then pieces are read in. The other way round a full cgroup evicts pages that were read before they are locked.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
HINT_BYTES = 128 << 10
_MLOCK_ONFAULT = 1
_PROT_READ, _MAP_SHARED = 1, 1
_MADV_RANDOM, _MADV_POPULATE_READ = 1, 22
_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
)  # fmt: skip
_libc.munmap.argtypes = _libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_mlock2 = getattr(_libc, "mlock2", None)
if _mlock2 is not None:
    _mlock2.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class LockError(Exception):
    """Memory cannot be locked; the text is one sentence."""


def allow_locking(size_bytes: int) -> None:
    """Raise this process's own limit of locked memory (RLIMIT_MEMLOCK) to this, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY or soft >= size_bytes:
        return
    highest = hard if hard == resource.RLIM_INFINITY else max(hard, size_bytes)
    for wanted in ((size_bytes, highest), (hard, hard)):
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, wanted)
        except (OSError, ValueError):
            continue  # Only root may raise the hard limit; the soft one goes up to it.
        return


class LockedRange:
    """A mapping of `length` bytes from `offset` of an open file, both multiples of the page size. Released by `close`."""

    def __init__(self, descriptor: int, offset: int, length: int) -> None:
        """Maps and marks it as locked; what is resident is locked from here on. Reads nothing. Raises LockError."""
        self._descriptor = descriptor
        self._offset = offset
        self._length = length
        address = _libc.mmap(None, length, _PROT_READ, _MAP_SHARED, descriptor, offset)
        if address == _MAP_FAILED or address is None:
            raise LockError(f"cannot map the model: {os.strerror(ctypes.get_errno())}")
        self._address: int | None = address
        # A fault must not read a window around it: only what was asked for is read.
        _libc.madvise(address, length, _MADV_RANDOM)
        if _mlock2 is None:
            self.close()
            raise LockError("the C library has no mlock2 (glibc 2.27 has)")
        if _mlock2(address, length, _MLOCK_ONFAULT) != 0:
            number = ctypes.get_errno()
            self.close()
            raise _refused(number, length)

    def populate(self, start: int, length: int) -> None:
        """Bring `length` bytes from `start` (within the range) in; each page is locked as it comes. Raises LockError, OSError."""
        assert self._address is not None
        at = self._offset + start
        for hint in range(at, at + length, HINT_BYTES):
            os.posix_fadvise(self._descriptor, hint, min(HINT_BYTES, at + length - hint), os.POSIX_FADV_WILLNEED)
        if _libc.madvise(self._address + start, length, _MADV_POPULATE_READ) == 0:
            return
        number = ctypes.get_errno()
        if number == errno.EINVAL and _libc.mlock(self._address + start, length) == 0:
            return  # Before Linux 5.14: mlock(2) reads in what it locks.
        if number == errno.EFAULT:
            raise LockError("the model file ends before the model does")
        raise OSError(number, os.strerror(number))

    def close(self) -> None:
        """Unmap it: its pages are page cache like any other again."""
        address, self._address = self._address, None
        if address is not None:
            _libc.munmap(address, self._length)


def _refused(number: int, length: int) -> LockError:
    if number in (errno.EPERM, errno.ENOMEM, errno.EAGAIN):
        soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        allowed = "no limit" if soft == resource.RLIM_INFINITY else f"{soft} bytes"
        return LockError(
            f"cannot lock {length} bytes of the model: {os.strerror(number)} (this process may lock {allowed}; "
            "set LimitMEMLOCK=infinity in the unit, or let it run with CAP_IPC_LOCK)"
        )
    return LockError(f"cannot lock the model: {os.strerror(number)}")
