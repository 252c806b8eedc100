"""The model file, really mapped, and the touching of its pages.

Mapped as llama.cpp maps it (shared, read-only, the file opened with POSIX_FADV_SEQUENTIAL, which doubles the read-ahead of
its faults) and streamed once in file order at the start, as MAP_POPULATE does.

A touch hands the kernel one byte of every page with pwritev(2), through ctypes, which lets go of the interpreter lock: so
several threads wait for the disk at once, as llama.cpp's do, HTTP is answered meanwhile, and a file that was cut short is
an EFAULT instead of a SIGBUS. The faults are the load this program exists to make.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from moetuned.gguf.experts import ExpertMap, expert_slices, other_ranges
from moetuned.schema.model import ByteRange

PAGE_BYTES = mmap.PAGESIZE
_PIECE_BYTES = 8 << 20
# Linux 5.14, include/uapi/asm-generic/mman-common.h; Python's mmap has no name for it.
_MADV_POPULATE_READ = 22
_MAP_FAILED = ctypes.c_void_p(-1).value
# IOV_MAX of Linux.
_PAGES_A_CALL = 1024

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.pwritev.restype = ctypes.c_ssize_t
_libc.pwritev.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)

Span = tuple[int, int]
"""Address of the first page, number of pages."""


class ModelMap:
    """A mapped model and which pages a token touches, `threads` faults at a time.

    Raises OSError when a part cannot be mapped. The mapping is there for as long as the process is.
    """

    def __init__(self, paths: Sequence[str], experts: ExpertMap, threads: int) -> None:
        self._addresses = [_map(path, size) for path, size in zip(paths, experts.part_bytes, strict=True)]
        self._experts = experts
        self._sink = os.memfd_create("moetuned-simulator")
        self._pool = ThreadPoolExecutor(threads - 1, "touch") if threads > 1 else None
        self._threads = threads
        self._slices: dict[tuple[int, int], tuple[Span, ...]] = {}
        self._other = self._spans(other_ranges(experts, embeddings=False))

    def stream(self, progress: Callable[[int], None]) -> None:
        """Read the whole mapping once in file order; `progress` gets the bytes done. Raises OSError."""
        done = 0
        for address, size in zip(self._addresses, self._experts.part_bytes, strict=True):
            for start in range(0, size, _PIECE_BYTES):
                length = min(_PIECE_BYTES, size - start)
                # Kernels before 5.14 do not know the advice, and one short of memory may refuse: then fault by hand.
                if _libc.madvise(address + start, length, _MADV_POPULATE_READ):
                    self._touch_all([(address + start, -(-length // PAGE_BYTES))])
                done += length
                progress(done)

    def touch_other(self) -> int:
        """Touch what every token needs, all but routed experts and token tables; returns the pages. Raises OSError."""
        return self._touch(self._other)

    def touch_experts(self, layer: int, experts: Iterable[int]) -> int:
        """Touch the slices of some experts of a layer; returns the pages. Raises OSError."""
        spans: list[Span] = []
        for expert in experts:
            key = (layer, expert)
            if key not in self._slices:
                self._slices[key] = self._spans(expert_slices(self._experts, layer, expert))
            spans += self._slices[key]
        return self._touch(spans)

    def _touch(self, spans: Sequence[Span]) -> int:
        if self._pool is None or len(spans) < 2:
            return self._touch_all(spans)
        others = [
            self._pool.submit(self._touch_all, spans[number :: self._threads]) for number in range(1, self._threads)
        ]
        return self._touch_all(spans[:: self._threads]) + sum(other.result() for other in others)

    def _touch_all(self, spans: Iterable[Span]) -> int:
        total = 0
        for address, pages in spans:
            for first in range(0, pages, _PAGES_A_CALL):
                count = min(_PAGES_A_CALL, pages - first)
                start = address + first * PAGE_BYTES
                vector = array("Q", (1,)) * (2 * count)
                vector[0::2] = array("Q", range(start, start + count * PAGE_BYTES, PAGE_BYTES))
                if _libc.pwritev(self._sink, vector.buffer_info()[0], count, 0) != count:
                    raise OSError(ctypes.get_errno(), "the mapped model cannot be read; was the file cut short?")
            total += pages
        return total

    def _spans(self, ranges: Iterable[ByteRange]) -> tuple[Span, ...]:
        spans = []
        for one in ranges:
            first, end = one.offset // PAGE_BYTES, -(-(one.offset + one.length) // PAGE_BYTES)
            spans.append((self._addresses[one.part] + first * PAGE_BYTES, end - first))
        return tuple(spans)


def _map(path: str, size_bytes: int) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        address = _libc.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address is None or address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), "mmap failed", path)
        return int(address)
    finally:
        os.close(descriptor)
