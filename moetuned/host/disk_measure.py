"""Measures how fast a disk gives random expert slices to page faults: the very reads that a backend makes, for a few seconds.

Each slice is mapped from a file opened as llama.cpp opens it (POSIX_FADV_SEQUENTIAL, which doubles the read-ahead) and
populated by the kernel through the fault path. Only slices whose surroundings are not in memory are read, each once, and only what
was read is dropped again, so nobody's cache is lost. Kernels before 5.14 cannot populate a mapping; there the slice is
read with pread(2).
"""

from __future__ import annotations

import bisect
import ctypes
import errno
import os
import random
import threading
import time
from collections.abc import Sequence

from moetuned.host.page_cache import PAGE_BYTES, resident_pages
from moetuned.schema.estimate import Rate
from moetuned.schema.model import ByteRange
from moetuned.schema.units import format_bytes, format_rate

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_PROT_READ, _MAP_SHARED = 1, 1
_MAP_FAILED = ctypes.c_void_p(-1).value

MEASURE_SECONDS = 4.0
MEASURE_BYTES = 2 << 30
FEWEST_READS = 8
_MADV_POPULATE_READ = 22
_MOST_READS = 4096
_MOST_LOOKS = 20_000
_IN_MEMORY = ("tmpfs", "ramfs")
_SPREAD = 1.3


class MeasureError(Exception):
    """It cannot be measured; the text is one sentence."""


def measure_slices(
    paths: Sequence[str],
    slices: Sequence[ByteRange],
    *,
    window_bytes: int,
    threads: int,
    filesystem: str | None,
    seconds: float = MEASURE_SECONDS,
    budget_bytes: int = MEASURE_BYTES,
    seed: int | None = None,
) -> Rate:
    """Bytes of slices a second, from one reader (low) to `threads` readers (high). Raises MeasureError.

    Reads for at most about `seconds` and `budget_bytes`, half of each with one reader.
    """
    if filesystem in _IN_MEMORY:
        raise MeasureError(f"the model is in memory ({filesystem}), so there is no disk to measure")
    if not slices:
        raise MeasureError("the model has no experts, so there are no slices to read")
    descriptors = _open_all(paths)
    try:
        cold = _cold(descriptors, slices, window_bytes, budget_bytes, random.Random(seed))  # noqa: S311  no secret
        try:
            half = len(cold) // 2
            rates = [
                _round(descriptors, chosen, window_bytes, readers, seconds / 2)
                for chosen, readers in ((cold[:half], 1), (cold[half:], max(1, threads)))
            ]
        finally:
            _drop(descriptors, cold, window_bytes)
    except OSError as error:
        raise MeasureError(f"reading the model failed: {error.strerror or error}") from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    size = format_bytes(slices[0].length)
    source = f"measured: slices of {size}, {' and '.join(map(format_rate, rates))} with 1 and {threads} readers"
    return Rate(min(rates) / _SPREAD, max(rates) * _SPREAD, source)


def _open_all(paths: Sequence[str]) -> list[int]:
    descriptors: list[int] = []
    try:
        for path in paths:
            descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            os.posix_fadvise(descriptors[-1], 0, 0, os.POSIX_FADV_SEQUENTIAL)
    except OSError as error:
        for descriptor in descriptors:
            os.close(descriptor)
        raise MeasureError(f"cannot read the model file {error.filename or ''}: {error.strerror}") from error
    return descriptors


def _cold(
    descriptors: Sequence[int],
    slices: Sequence[ByteRange],
    window_bytes: int,
    budget_bytes: int,
    chooser: random.Random,
) -> list[ByteRange]:
    """Random slices that are not in memory, nor their surroundings, and so far apart that none is read with another."""
    taken: dict[int, list[int]] = {}
    cold: list[ByteRange] = []
    warm = 0
    wanted = max(2 * FEWEST_READS, min(_MOST_READS, budget_bytes // slices[0].length))
    for chosen in chooser.sample(slices, min(len(slices), _MOST_LOOKS)):
        start, end = _surroundings(chosen, window_bytes)
        starts = taken.setdefault(chosen.part, [])
        place = bisect.bisect(starts, start)
        near = starts[max(0, place - 1) : place + 1]
        if any(abs(start - other) < end - start for other in near):
            continue
        try:
            ready = 1 in resident_pages(descriptors[chosen.part], start, end - start)
        except PermissionError:
            raise MeasureError(
                "the kernel tells only the owner of the model file what of it is in memory; run as root or as the owner"
            ) from None
        if ready:
            warm += 1
        else:
            starts.insert(place, start)
            cold.append(chosen)
            if len(cold) >= wanted:
                break
    if len(cold) < 2 * FEWEST_READS and not warm:
        raise MeasureError(
            f"the model is too small to be measured: only {len(cold)} of its slices lie so far apart that the read-ahead of one "
            f"({format_bytes(window_bytes)}) does not reach another; lower read_ahead_kb, which is better for such a model anyway"
        )
    if len(cold) < 2 * FEWEST_READS:
        raise MeasureError("nearly all of the model is in memory already, so the disk cannot be measured now")
    return cold


def _surroundings(chosen: ByteRange, window_bytes: int) -> tuple[int, int]:
    """Whole pages from a window before a slice to two behind it: one around the last fault and one read ahead of it."""
    start = max(0, chosen.offset - window_bytes) // PAGE_BYTES * PAGE_BYTES
    return start, -(-(chosen.offset + chosen.length + 2 * window_bytes) // PAGE_BYTES) * PAGE_BYTES


def _round(
    descriptors: Sequence[int], slices: Sequence[ByteRange], window_bytes: int, readers: int, seconds: float
) -> float:
    """Bytes of slices a second that so many readers got."""
    waiting = iter(slices)
    lock = threading.Lock()
    done: list[int] = []
    problems: list[OSError] = []
    began = time.monotonic()

    def work() -> None:
        while time.monotonic() < began + seconds and not problems:
            with lock:
                chosen = next(waiting, None)
            if chosen is None:
                return
            try:
                _fault(descriptors[chosen.part], chosen)
                _drop(descriptors, (chosen,), window_bytes)  # now, so that it never pushes out what others need
            except OSError as error:
                problems.append(error)
                return
            done.append(chosen.length)

    workers = [threading.Thread(target=work) for _ in range(readers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.monotonic() - began
    if problems:
        raise problems[0]
    if len(done) < FEWEST_READS:
        raise MeasureError(f"only {len(done)} slices could be read in {took:.1f} s, too few for a rate")
    return sum(done) / max(took, 1e-9)


def _drop(descriptors: Sequence[int], slices: Sequence[ByteRange], window_bytes: int) -> None:
    for chosen in slices:
        start, end = _surroundings(chosen, window_bytes)
        os.posix_fadvise(descriptors[chosen.part], start, end - start, os.POSIX_FADV_DONTNEED)


def _fault(descriptor: int, chosen: ByteRange) -> None:
    """Read a slice as a backend's faults do. Raises OSError."""
    first = chosen.offset // PAGE_BYTES * PAGE_BYTES
    length = chosen.offset + chosen.length - first
    address = _libc.mmap(None, length, _PROT_READ, _MAP_SHARED, descriptor, first)
    if address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    try:
        failed = _libc.madvise(address, length, _MADV_POPULATE_READ) != 0
        number = ctypes.get_errno() if failed else 0
    finally:
        _libc.munmap(address, length)
    if number == errno.EINVAL:
        at, end = first, first + length
        while at < end and (got := len(os.pread(descriptor, end - at, at))):
            at += got
    elif failed:
        raise OSError(number, os.strerror(number))
