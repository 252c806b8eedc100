"""Measures how fast a disk gives random expert slices to page faults: the very reads that a backend makes, for a few seconds.

Only slices whose surroundings are not in memory are read, each once, and only what was read is dropped again, so nobody's cache
is lost. Kernels before 5.14 cannot populate a mapping; there the slice is read with pread(2).
"""

from __future__ import annotations

import bisect
import errno
import os
import random
import threading
import time
from collections.abc import Mapping, Sequence

from moetuned.host.page_cache import resident_pages
from moetuned.host.slice_faults import drop, map_slice, open_part, populate, surroundings, unmap
from moetuned.schema.estimate import Rate
from moetuned.schema.model import ByteRange
from moetuned.schema.units import format_bytes, format_rate

MEASURE_SECONDS = 4.0
MEASURE_BYTES = 2 << 30
FEWEST_READS = 8
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
            drop(descriptors, cold, window_bytes)
    except OSError as error:
        raise MeasureError(f"reading the model failed: {error.strerror or error}") from error
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)
    size = format_bytes(slices[0].length)
    source = f"measured: slices of {size}, {' and '.join(map(format_rate, rates))} with 1 and {threads} readers"
    return Rate(min(rates) / _SPREAD, max(rates) * _SPREAD, source)


def _open_all(paths: Sequence[str]) -> dict[int, int]:
    """Descriptors by the number of the part."""
    descriptors: dict[int, int] = {}
    try:
        for part, path in enumerate(paths):
            descriptors[part] = open_part(path)
    except OSError as error:
        for descriptor in descriptors.values():
            os.close(descriptor)
        raise MeasureError(f"cannot read the model file {error.filename or ''}: {error.strerror}") from error
    return descriptors


def _cold(
    descriptors: Mapping[int, int],
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
        start, end = surroundings(chosen, window_bytes)
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


def _round(
    descriptors: Mapping[int, int], slices: Sequence[ByteRange], window_bytes: int, readers: int, seconds: float
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
                drop(descriptors, (chosen,), window_bytes)  # now, so that it never pushes out what others need
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


def _fault(descriptor: int, chosen: ByteRange) -> None:
    """Read a slice as a backend's faults do. Raises OSError."""
    mapped = map_slice(descriptor, chosen)
    try:
        number = populate(mapped, 0, chosen.length)
    finally:
        unmap(mapped)
    if number == errno.EINVAL:
        at, end = chosen.offset, chosen.offset + chosen.length
        while at < end and (got := len(os.pread(descriptor, end - at, at))):
            at += got
    elif number:
        raise OSError(number, os.strerror(number))
