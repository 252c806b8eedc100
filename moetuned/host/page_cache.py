"""How much of files is in the page cache: cachestat(2) by range, mincore(2) where the kernel has none.

cachestat costs 0.05 ms a GiB in large folios, 20 ms in 4 KiB pages and 25 ms a GiB of evicted pages, so a scan is cut into slices and
advanced on a CPU budget. On overlayfs cachestat looks at the wrong inode and counts nothing (measured, Linux 6.18), so mincore is asked
there. The kernel tells only those who own a file or may write it: cachestat refuses others, mincore shows them
every page as resident (Linux 5.2), which is never taken for an answer here.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence

import msgspec

from moetuned.schema.model import ByteRange
from moetuned.schema.sample import RawResidency

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
FIRST_SLICE_BYTES = 64 << 20
SMALLEST_SLICE_BYTES = 4 << 20
LARGEST_SLICE_BYTES = 1 << 30
MINCORE_SLICE_BYTES = 64 << 20
_CACHESTAT = 561 if os.uname().machine == "alpha" else 451
_PROT_READ, _MAP_SHARED = 1, 1
_OVERLAYFS_MAGIC = 0x794C7630
_MAP_FAILED = ctypes.c_void_p(-1).value


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


class CachedPages(msgspec.Struct, frozen=True, gc=False):
    """Pages of a range. `evicted` None: mincore was asked, which does not know."""

    cached: int
    evicted: int | None = None
    recently_evicted: int | None = None


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def cachestat(descriptor: int, offset: int, length: int) -> CachedPages:
    """Pages of `length` bytes from `offset` that are in the page cache or were evicted from it.

    Raises OSError: ENOSYS before Linux 6.5, EPERM when the caller neither owns the file nor may write it.
    """
    if length <= 0:
        return CachedPages(0, 0, 0)  # The kernel takes length 0 for "to the end of the file".
    part, counts = _Range(offset, length), _Counts()
    result = _libc.syscall(
        ctypes.c_long(_CACHESTAT), ctypes.c_int(descriptor), ctypes.byref(part), ctypes.byref(counts), ctypes.c_uint(0)
    )
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return CachedPages(counts.cached, counts.evicted, counts.recently_evicted)


def mincore(descriptor: int, offset: int, length: int) -> CachedPages:
    """The same for kernels without cachestat; `offset` is a multiple of the page size. Raises OSError; PermissionError where the answer
    would be a lie.
    """
    return CachedPages(resident_pages(descriptor, offset, length).count(1))


def resident_pages(descriptor: int, offset: int, length: int) -> bytes:
    """For each page of the range 1 when it is in the page cache, else 0. Arguments and errors as `mincore`."""
    if length <= 0:
        return b""
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() and not os.access(f"/proc/self/fd/{descriptor}", os.W_OK, effective_ids=True):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    address = _libc.mmap(None, length, _PROT_READ, _MAP_SHARED, descriptor, offset)
    if address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    try:
        pages = bytearray(-(-length // PAGE_BYTES))
        if _libc.mincore(address, length, (ctypes.c_char * len(pages)).from_buffer(pages)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        _libc.munmap(address, length)
    # The lowest bit of each byte is the answer; the others are reserved.
    return bytes(pages.translate(_LOWEST_BIT))


_LOWEST_BIT = bytes(value & 1 for value in range(256))


class PageCounter:
    """Counts pages of one file after another, with the call that tells the truth there, and keeps calls short."""

    def __init__(self, cpu_clock: Callable[[], float] = time.thread_time) -> None:
        """`cpu_clock`: CPU seconds of the calling thread."""
        self.slice_bytes = FIRST_SLICE_BYTES
        self.evicted_known = True
        self.clock_seconds = 0.0
        """What the clock said after the last timed call."""
        self._cpu_clock = cpu_clock
        self._descriptor = -1
        self._has_cachestat = True
        self._count: Callable[[int, int, int], CachedPages] = cachestat

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[os.stat_result]:
        """Count this file inside the context. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._choose(mincore if not self._has_cachestat or _on_overlay(self._descriptor) else cachestat)
            yield os.fstat(self._descriptor)
        finally:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    @property
    def slice_pages(self) -> int:
        """How many pages the next call should be asked for at most."""
        return max(1, self.slice_bytes // PAGE_BYTES)

    def count(self, page: int, pages: int, *, timed: bool = True) -> CachedPages:
        """`pages` pages from `page` on. Untimed for many small calls: the clock costs as much as one. Raises OSError."""
        began = self._cpu_clock() if timed else 0.0
        try:
            counted = self._count(self._descriptor, page * PAGE_BYTES, pages * PAGE_BYTES)
        except OSError as error:
            if error.errno != errno.ENOSYS or self._count is mincore:
                raise
            self._has_cachestat = False
            self._choose(mincore)
            counted = mincore(self._descriptor, page * PAGE_BYTES, pages * PAGE_BYTES)
        if timed:
            self.clock_seconds = self._cpu_clock()
            self._fit_slice(self.clock_seconds - began)
        return counted

    def _choose(self, count: Callable[[int, int, int], CachedPages]) -> None:
        self._count = count
        if count is mincore:
            self.evicted_known = False
            self.slice_bytes = min(self.slice_bytes, MINCORE_SLICE_BYTES)

    def _fit_slice(self, took_seconds: float) -> None:
        """Keep one call between about 0.3 and 2 ms: what a GiB costs differs by a factor of 500."""
        if took_seconds > 0.002:
            self.slice_bytes = max(SMALLEST_SLICE_BYTES, self.slice_bytes // 2)
        elif took_seconds < 0.0003:
            largest = LARGEST_SLICE_BYTES if self._count is cachestat else MINCORE_SLICE_BYTES
            self.slice_bytes = min(largest, self.slice_bytes * 2)


class ResidencyScan:
    """One pass over a model's files, advanced in pieces. Belongs to one thread at a time.

    With `expert_ranges` experts and the rest are counted apart; a page that both share counts where its first byte lies.
    """

    def __init__(
        self,
        paths: Sequence[str],
        expert_ranges: Sequence[ByteRange] | None = None,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`paths`: all parts in order. Opens nothing yet."""
        self.result: RawResidency | None = None
        self.unknown: str | None = None
        self._paths = tuple(paths)
        self._experts = None if expert_ranges is None else expert_page_runs(expert_ranges, len(self._paths))
        self._cpu_clock = cpu_clock
        self._counter = PageCounter(cpu_clock)
        self._work = self._slices()
        self._cached, self._evicted, self._recently, self._expert_cached = 0, 0, 0, 0

    def advance(self, cpu_seconds: float = 0.005) -> bool:
        """Go on for about this much CPU time; True when finished: `result` is set, or `unknown` says why it is not."""
        if self.result is not None or self.unknown is not None:
            return True
        began = self._cpu_clock()
        try:
            for _ in self._work:
                if self._cpu_clock() - began >= cpu_seconds:
                    return False
        except OSError as error:
            self.unknown = why_unknown(error)
            self._work.close()
            return True
        evicted_known = self._counter.evicted_known
        self.result = RawResidency(
            cached=self._cached,
            evicted=self._evicted if evicted_known else None,
            recently_evicted=self._recently if evicted_known else None,
            expert_cached=None if self._experts is None else self._expert_cached,
            other_cached=None if self._experts is None else self._cached - self._expert_cached,
        )
        return True

    def close(self) -> None:
        """Give up; closes the file that is being looked at."""
        self._work.close()

    def _slices(self) -> Generator[None, None, None]:
        """Count slice after slice."""
        for part, path in enumerate(self._paths):
            with self._counter.open(path) as status:
                pages = -(-status.st_size // PAGE_BYTES)
                for start, stop, expert in page_runs(pages, () if self._experts is None else self._experts[part]):
                    while start < stop:
                        end = min(stop, start + self._counter.slice_pages)
                        self._add(self._counter.count(start, end - start), expert)
                        start = end
                        yield

    def _add(self, counted: CachedPages, expert: bool) -> None:
        self._cached += counted.cached
        self._evicted += counted.evicted or 0
        self._recently += counted.recently_evicted or 0
        self._expert_cached += counted.cached if expert else 0


def expert_page_runs(ranges: Sequence[ByteRange], parts: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """For each part the pages (first, past the last) whose first byte lies in a range; neighbours joined, in order."""
    by_part: list[list[tuple[int, int]]] = [[] for _ in range(parts)]
    for one in sorted(ranges, key=lambda each: (each.part, each.offset)):
        first, last = -(-one.offset // PAGE_BYTES), -(-(one.offset + one.length) // PAGE_BYTES)
        runs = by_part[one.part]
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], last))
        elif first < last:
            runs.append((first, last))
    return tuple(tuple(runs) for runs in by_part)


def page_runs(pages: int, experts: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, bool]]:
    """All pages of a part as runs (first, past the last, whether of experts), in order and without gaps."""
    at = 0
    for first, last in experts:
        first, last = min(first, pages), min(last, pages)
        if at < first:
            yield at, first, False
        if first < last:
            yield first, last, True
        at = max(at, last)
    if at < pages:
        yield at, pages, False


def _on_overlay(descriptor: int) -> bool:
    """Whether a file is on overlayfs: the first word of struct statfs is the file system's magic number."""
    status = (ctypes.c_long * 32)()
    return _libc.fstatfs(descriptor, status) == 0 and (status[0] & 0xFFFFFFFF) == _OVERLAYFS_MAGIC


def why_unknown(error: OSError) -> str:
    """One sentence for a user whose model could not be looked at."""
    if error.errno == errno.EPERM:
        return "the kernel tells residency only to who owns the model file or may write it; run as root"
    name = f" {error.filename}" if error.filename else ""
    return f"cannot look at the model file{name}: {error.strerror or error}"
