"""Expert slices read as a backend's page faults read them: mapped, populated by the kernel, and their page cache dropped again.

llama.cpp opens its model with POSIX_FADV_SEQUENTIAL, which doubles the read-ahead that is in force at that moment (mm/fadvise.c,
file_ra_state_init in mm/readahead.c). The kernel populates pages through its fault path (MADV_POPULATE_READ, Linux 5.14).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping

import msgspec

from moetuned.host.page_cache import PAGE_BYTES
from moetuned.schema.model import ByteRange

_MADV_POPULATE_READ = 22
_PROT_READ, _MAP_SHARED = 1, 1
_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class MappedSlice(msgspec.Struct, frozen=True):
    """The mapped whole pages of a slice, which begins `head_bytes` after their address. To be given to `unmap`."""

    address: int
    head_bytes: int
    length: int


def open_part(path: str) -> int:
    """A descriptor for faults as llama.cpp's: with the read-ahead that is in force now, doubled. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def surroundings(chosen: ByteRange, window_bytes: int) -> tuple[int, int]:
    """Whole pages from a window before a slice to two behind it: one around the last fault and one read ahead of it."""
    start = max(0, chosen.offset - window_bytes) // PAGE_BYTES * PAGE_BYTES
    return start, -(-(chosen.offset + chosen.length + 2 * window_bytes) // PAGE_BYTES) * PAGE_BYTES


def drop(descriptors: Mapping[int, int], slices: Iterable[ByteRange], window_bytes: int) -> None:
    """Drop the page cache of the slices and their surroundings, but what a process has mapped. Raises OSError."""
    for chosen in slices:
        start, end = surroundings(chosen, window_bytes)
        os.posix_fadvise(descriptors[chosen.part], start, end - start, os.POSIX_FADV_DONTNEED)


def map_slice(descriptor: int, chosen: ByteRange) -> MappedSlice:
    """The pages of a slice, mapped and not read yet. Raises OSError."""
    first = chosen.offset // PAGE_BYTES * PAGE_BYTES
    head = chosen.offset - first
    address = _libc.mmap(None, head + chosen.length, _PROT_READ, _MAP_SHARED, descriptor, first)
    if address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return MappedSlice(address, head, chosen.length)


def populate(mapped: MappedSlice, at: int, length: int) -> int:
    """Fault in the pages of `length` bytes from byte `at` of the slice on; the error's number, 0 for none.

    EINVAL: the kernel is older than 5.14. A file that became shorter is an error here, not a signal.
    """
    start = mapped.head_bytes + at
    first = start // PAGE_BYTES * PAGE_BYTES
    if _libc.madvise(mapped.address + first, start + length - first, _MADV_POPULATE_READ) == 0:
        return 0
    return ctypes.get_errno()


def unmap(mapped: MappedSlice) -> None:
    """Let go of the pages."""
    _libc.munmap(mapped.address, mapped.head_bytes + mapped.length)
