"""What of a range is not in the page cache, and what that counts for a rate. Imports almost nothing: it runs inside a backend's cgroup."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_Range = tuple[int, int, int]
"""As `page_touch.Range`."""


class Mapping:
    """The C library, to map with. Only what needs it imports ctypes, and does so before the process joins a cgroup: what is imported
    stays charged to where it was.
    """

    def __init__(self) -> None:
        import ctypes
        import mmap

        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
        )  # fmt: skip
        self._libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        self._failed = ctypes.c_void_p(-1).value
        self._byte = ctypes.c_char
        self._read, self._shared, self._populate = mmap.PROT_READ, mmap.MAP_SHARED, mmap.MAP_POPULATE
        self._get_errno = ctypes.get_errno


class Uncached(Mapping):
    """How many bytes of a range are not in the page cache, by mincore(2). Where that cannot be known, all of them.

    host/page_cache.py does the same with more, and needs what this process cannot import.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__()
        self._paths = paths

    def __call__(self, one: _Range) -> int:
        """Never raises: what cannot be opened is told by whoever reads it."""
        part, offset, length = one
        before = offset % _PAGE_BYTES
        try:
            descriptor = os.open(self._paths[part], os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return length
        try:
            cached = self._cached(descriptor, offset - before, length + before) if _is_told(descriptor) else 0
        finally:
            os.close(descriptor)
        pages = -(-(length + before) // _PAGE_BYTES)
        return min(length, (pages - cached) * _PAGE_BYTES)

    def _cached(self, descriptor: int, offset: int, length: int) -> int:
        """Pages; 0 where it cannot be asked."""
        address = self._libc.mmap(None, length, self._read, self._shared, descriptor, offset)
        if address == self._failed:
            return 0
        pages = bytearray(-(-length // _PAGE_BYTES))
        failed = self._libc.mincore(address, length, (self._byte * len(pages)).from_buffer(pages))
        self._libc.munmap(address, length)
        # The lowest bit of each byte is the answer; the others are reserved.
        return 0 if failed else sum(page & 1 for page in pages)


class ToRead:
    """What a piece counts for a rate: what of it is to be read, and what read-ahead has read beyond earlier ones.

    A page that was marked for read-ahead before, as those of a header are, has the kernel read a window ahead, again and again, whatever
    advice the descriptor has (mm/filemap.c filemap_readahead): by the time of the next piece all of it is in the page cache. So what this
    process has had read from the disk (/proc/self/io) counts; where that is not counted (FUSE, other network file systems), all does.
    """

    def __init__(self, uncached: Callable[[_Range], int], read_bytes: Callable[[], int | None] | None = None) -> None:
        """`read_bytes`: had read so far, None: unknown."""
        self._uncached = uncached
        self._read_bytes = read_bytes or _own_read_bytes
        self._at_first = self._read_bytes()
        self._counted = 0

    def __call__(self, ranges: Sequence[_Range], length: int) -> int:
        """Bytes that the next piece, `length` long, counts."""
        now = self._read_bytes()
        if now is None or self._at_first is None:
            return length
        read = now - self._at_first
        if read == 0 and self._counted > 0:
            return length
        missing = sum(map(self._uncached, ranges))
        counts = missing + max(0, read - self._counted)
        self._counted += counts
        return counts


def _own_read_bytes() -> int | None:
    try:
        with open("/proc/self/io", "rb") as file:
            return int(file.read().partition(b"\nread_bytes: ")[2].split(maxsplit=1)[0])
    except (OSError, IndexError, ValueError):
        return None


def _is_told(descriptor: int) -> bool:
    """Whether the kernel tells us what is in memory: to others than who owns a file or may write it, it says that all of it is."""
    if os.fstat(descriptor).st_uid == os.geteuid():
        return True
    return os.access(f"/proc/self/fd/{descriptor}", os.W_OK, effective_ids=True)
