"""Measures what a read-ahead gives on this device with this model: expert slices faulted in through a mapping, as a backend does.

The kernel takes the read-ahead when a file is opened, so whoever opens the parts (`slice_faults.open_part`) decides the value, and the
measuring needs no setting changed. A slice is cut into pieces of a few rows that the threads take in turns, as llama.cpp shares out a
matrix. Around each slice that was read the page cache is dropped again: of this file only, and nothing that another process has mapped.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence

import msgspec

from moetuned.gguf.experts import ExpertMap
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.page_cache import PAGE_BYTES, cachestat
from moetuned.host.processes import MAPS_LIMIT_BYTES, pids
from moetuned.host.slice_faults import MappedSlice, drop, map_slice, populate, surroundings, unmap
from moetuned.parse.kernel_numbers import line_number
from moetuned.parse.process_maps import mapping_lines
from moetuned.schema.model import ByteRange

_REAL = RealFS()
PIECE_BYTES = 32 << 10
MOST_PARTS = 8
_BATCH_SLICES = 16
_BATCH_BYTES = 128 << 20
_MOST_SLICES = 20_000


class ReadAheadMeasureError(Exception):
    """It cannot be measured; the text is one sentence."""


class Round(msgspec.Struct, frozen=True):
    """What one round read: bytes of whole slices, bytes that really came from the disk (None: the kernel does not count), seconds."""

    slices: int
    useful_bytes: int
    read_bytes: int | None
    seconds: float


def choose_slices(experts: ExpertMap, seed: int) -> tuple[ByteRange, ...]:
    """Expert slices at random over the whole model (or over 8 parts of it at random), in the order in which they are to be read."""
    chooser = random.Random(seed)  # noqa: S311  no secret
    parts = sorted({tensor.part for tensor in experts.tensors})
    if len(parts) > MOST_PARTS:
        parts = chooser.sample(parts, MOST_PARTS)
    among = [tensor for tensor in experts.tensors if tensor.part in parts]
    total = sum(tensor.count for tensor in among)
    numbers = sorted(chooser.sample(range(total), min(total, _MOST_SLICES)))
    found: list[ByteRange] = []
    first = at = 0
    for tensor in among:
        while at < len(numbers) and numbers[at] < first + tensor.count:
            start = tensor.offset + (numbers[at] - first) * tensor.slice_bytes
            found.append(ByteRange(tensor.part, start, tensor.slice_bytes))
            at += 1
        first += tensor.count
    chooser.shuffle(found)
    return tuple(found)


def mapped_by(paths: Sequence[str], fs: HostFS = _REAL) -> tuple[int, ...]:
    """Processes that have one of the files mapped, by pid: backends, whose pages would be dropped. Never raises."""
    wanted = set()
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            wanted.add((status.st_dev, status.st_ino))
    inodes = {str(inode) for _, inode in wanted}
    found = []
    for pid in pids():
        with contextlib.suppress(OSError):
            for line in mapping_lines(fs.read_text(f"/proc/{pid}/maps", MAPS_LIMIT_BYTES)):
                fields = line.split(None, 5)
                if len(fields) == 6 and fields[4] in inodes and _is_one_of(pid, fields[0], wanted):
                    found.append(pid)
                    break
    return tuple(found)


def _is_one_of(pid: int, addresses: str, wanted: set[tuple[int, int]]) -> bool:
    """Whether the file mapped at these addresses is one of `wanted`; its name may be another one in the process's own mounts.

    Where the kernel does not show the file itself, the same inode number is taken for the same file.
    """
    try:
        status = os.stat(f"/proc/{pid}/map_files/{addresses}")
    except OSError:
        return True
    return (status.st_dev, status.st_ino) in wanted


def cached_bytes(descriptors: dict[int, int], slices: Sequence[ByteRange]) -> int:
    """Bytes of `slices` that are in the page cache now; 0 where the kernel does not tell. Raises nothing."""
    try:
        return sum(cachestat(descriptors[each.part], each.offset, each.length).cached for each in slices) * PAGE_BYTES
    except OSError:
        return 0


def read_round(
    descriptors: dict[int, int],
    slices: Iterator[ByteRange],
    window_bytes: int,
    *,
    threads: int,
    seconds: float,
    budget_bytes: int,
) -> Round:
    """Fault in slices until about `seconds` passed, `budget_bytes` were read or there are no more; drop each again.

    `descriptors` by part, as `slice_faults.open_part` gives them, `window_bytes` the window of one fault there. Raises ReadAheadMeasureError.
    """
    count = useful = read = 0
    counted = True
    took, began = 0.0, time.monotonic()
    used: list[ByteRange] = []
    try:
        for batch in _batches(slices, window_bytes):
            used += batch
            drop(descriptors, batch, window_bytes)
            before = _own_read_bytes()
            took += _fault_all(descriptors, batch, threads)
            after = _own_read_bytes()
            drop(descriptors, batch, window_bytes)
            count += len(batch)
            useful += sum(each.length for each in batch)
            if before is None or after is None:
                counted = False
            else:
                read += after - before
            if time.monotonic() - began >= seconds or max(read, useful) >= budget_bytes:
                break
    except OSError as error:
        raise ReadAheadMeasureError(f"reading the model failed: {error.strerror or error}") from error
    finally:
        drop(descriptors, used, window_bytes)  # what was still on its way when it was dropped the first time
    return Round(count, useful, read if counted else None, took)


def _batches(slices: Iterator[ByteRange], window_bytes: int) -> Iterator[list[ByteRange]]:
    """Slices that are read together: so far apart that none is read with another, and few enough to be dropped soon."""
    batch: list[ByteRange] = []
    taken: list[tuple[int, int, int]] = []
    size = 0
    for each in slices:
        start, end = surroundings(each, window_bytes)
        near = any(part == each.part and start < other_end and other < end for part, other, other_end in taken)
        if batch and (near or len(batch) >= _BATCH_SLICES or size + end - start > _BATCH_BYTES):
            yield batch
            batch, taken, size = [], [], 0
        batch.append(each)
        taken.append((each.part, start, end))
        size += end - start
    if batch:
        yield batch


def _fault_all(descriptors: dict[int, int], batch: Sequence[ByteRange], threads: int) -> float:
    """Seconds until all of the batch was faulted in, its slices one after the other by all threads together."""
    mapped: list[MappedSlice] = []
    try:
        mapped.extend(map_slice(descriptors[each.part], each) for each in batch)
        problems: list[OSError] = []
        halt = threading.Event()

        def work(number: int) -> None:
            for each in mapped:
                for at in range(number * PIECE_BYTES, each.length, threads * PIECE_BYTES):
                    if halt.is_set():
                        return
                    problem = _populate(each, at, min(PIECE_BYTES, each.length - at))
                    if problem is not None:
                        problems.append(problem)
                        halt.set()

        others = [threading.Thread(target=work, args=(number,)) for number in range(1, threads)]
        began = time.monotonic()
        for other in others:
            other.start()
        try:
            work(0)
        except BaseException:  # Ctrl-C: the others must not go on with what is about to be unmapped
            halt.set()
            raise
        finally:
            for other in others:
                other.join()
        took = time.monotonic() - began
    finally:
        for each in mapped:
            unmap(each)
    if problems:
        raise problems[0]
    return took


def _populate(mapped: MappedSlice, at: int, length: int) -> OSError | None:
    number = populate(mapped, at, length)
    if number == errno.EINVAL:
        return OSError(number, "this kernel cannot populate a mapping (Linux 5.14 or newer can)")
    return OSError(number, os.strerror(number)) if number else None


def _own_read_bytes() -> int | None:
    """What this process made the disks read so far; None on a kernel that does not count it."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            return line_number(file.read(), "read_bytes", ": ")
    except OSError:
        return None
