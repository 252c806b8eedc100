"""Pages a process's mapping of model files out, so that what comes back shows what is used. The process is not harmed: it reads again.

process_madvise(2) with MADV_PAGEOUT reclaims pages at once, MADV_COLD makes them the first to go. Linux 5.10; it needs to be allowed to
ptrace-read the process and CAP_SYS_NICE (5.12 and its stable backports; before, to ptrace-attach). Pages of a file are reclaimed only
for who owns the file, has CAP_FOWNER or may write it (mm/madvise.c, can_do_file_pageout); for others the kernel does nothing and says
that all went well, so that is found out first. Pages that another process has mapped too keep their place, and mlock(2)ed mappings
are refused. What is in the page cache without being mapped is reached through the file: POSIX_FADV_DONTNEED drops clean pages that
nobody has mapped. Both leave pages alone that only partly belong to a range. A few pages may stay: those that were read a moment ago.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from enum import IntEnum

import msgspec

from moetuned.host.page_cache import PAGE_BYTES, PageCounter
from moetuned.host.processes import ProcessHandle, ProcessIdentity
from moetuned.parse.process_maps import mapping_lines
from moetuned.schema.model import ByteRange

PIECE_BYTES = 64 << 20
"""Of one call: the process's faults wait while the kernel unmaps (measured, all resident: 64 MiB take 5 to 15 ms)."""
IOV_MAX = 1024
MAPS_LIMIT_BYTES = 32 << 20
COUNT_PIECE_SECONDS = 0.005
"""CPU time between two pauses of `pages_in_memory`."""
_PROCESS_MADVISE = 550 if os.uname().machine == "alpha" else 440
_CAP_FOWNER = 3
_MAPPING = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) \S{4} ([0-9a-f]{1,16}) ([0-9a-f]{2,4}):([0-9a-f]{2,6}) (\d{1,20})"
)


class Advice(IntEnum):
    """include/uapi/asm-generic/mman-common.h; the same on all architectures that moetuned runs on."""

    COLD = 20
    PAGEOUT = 21


class Mapping(msgspec.Struct, frozen=True, gc=False):
    """One mapping of a file: addresses `start` up to `end` show the file from `offset` on. `device`, `inode`: as maps prints them."""

    start: int
    end: int
    offset: int
    device: int
    inode: int


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def process_madvise(descriptor: int, spans: Sequence[tuple[int, int]], advice: Advice) -> int:
    """Advise about spans (address, length) of the process of a pidfd, `IOV_MAX` at most; returns the bytes that were gone through.

    Raises OSError: ENOSYS before Linux 5.10, EPERM, ESRCH when it has ended, EINVAL for locked memory.
    """
    vector = (_Iovec * len(spans))(*(_Iovec(start, length) for start, length in spans))
    done = _libc.syscall(
        ctypes.c_long(_PROCESS_MADVISE),
        ctypes.c_int(descriptor),
        vector,
        ctypes.c_size_t(len(spans)),
        ctypes.c_int(advice),
        ctypes.c_uint(0),
    )
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(done)


def file_mappings(maps: str) -> tuple[Mapping, ...]:
    """The mappings of files in a text of /proc/<pid>/maps (proc(5)), in order of address; lines of another form are left out."""
    found = []
    for line in mapping_lines(maps):
        match = _MAPPING.match(line)
        if match is None or int(match[6]) == 0:
            continue
        start, end, offset, major, minor = (int(match[group], 16) for group in range(1, 6))
        if start < end:
            found.append(Mapping(start, end, offset, os.makedev(major, minor), int(match[6])))
    return tuple(found)


def spans_of(mappings: Iterable[Mapping], ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Spans (address, length) of whole pages that lie in `ranges` (offset, length) of the file that `mappings` show.

    Pages that are only partly in a range are left out. Ranges that touch are one.
    """
    whole = [(-(-start // PAGE_BYTES) * PAGE_BYTES, end // PAGE_BYTES * PAGE_BYTES) for start, end in _joined(ranges)]
    ends = [end for _, end in whole]
    spans = []
    for mapping in mappings:
        stop = mapping.offset + mapping.end - mapping.start
        for index in range(bisect_right(ends, mapping.offset), len(whole)):
            first, last = max(whole[index][0], mapping.offset), min(whole[index][1], stop)
            if first >= stop:
                break
            if first < last:
                spans.append((mapping.start + first - mapping.offset, last - first))
    return tuple(spans)


class PageOut:
    """Pages ranges of a model out of one process, in pieces. Belongs to one thread at a time; it blocks for the length of a piece."""

    def __init__(
        self,
        process: ProcessIdentity,
        paths: Sequence[str],
        ranges: Sequence[ByteRange],
        advice: Advice = Advice.PAGEOUT,
        *,
        unmapped: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`paths`: the model's parts in order. `unmapped`: with PAGEOUT, drop what nobody has mapped, too. Does nothing yet."""
        self.mapped_bytes = 0
        """Of the ranges, what the process has mapped and the kernel went through (resident or not)."""
        self.refused: str | None = None
        """One sentence about what the kernel did not do; None when it did all."""
        self._process = process
        self._paths = tuple(paths)
        self._ranges = tuple(ranges)
        self._advice = advice
        self._unmapped = unmapped and advice is Advice.PAGEOUT
        self._clock = clock
        self._work = self._pieces()

    def advance(self, seconds: float = 0.02) -> bool:
        """Go on for about so long; True when finished."""
        began = self._clock()
        try:
            for _ in self._work:
                if self._clock() - began >= seconds:
                    return False
        except OSError as error:
            self._refuse(_sentence(error))
            self._work.close()
        return True

    def close(self) -> None:
        """Stop here."""
        self._work.close()

    def _pieces(self) -> Generator[None, None, None]:
        handle = ProcessHandle(self._process)
        try:
            by_part: dict[int, list[tuple[int, int]]] = {}
            for one in self._ranges:
                by_part.setdefault(one.part, []).append((one.offset, one.length))
            shown = _mappings_of(self._process.pid, [self._paths[part] for part in by_part])
            if handle.ended():
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            for part, ranges in by_part.items():
                yield from self._part(handle, self._paths[part], shown[self._paths[part]], ranges)
        finally:
            handle.close()

    def _part(
        self, handle: ProcessHandle, path: str, mappings: Sequence[Mapping], ranges: Sequence[tuple[int, int]]
    ) -> Iterator[None]:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if self._advice is Advice.PAGEOUT and mappings and not may_page_out(descriptor):
                self._refuse(
                    f"the kernel pages {os.path.basename(path)} out only for its owner or who may write it (CAP_FOWNER)"
                )
                mappings = ()
            elif not mappings:
                self._refuse(f"process {self._process.pid} has not mapped {os.path.basename(path)}")
            # First: it also puts pages on the LRU lists that were just read and wait in a CPU's batch, where PAGEOUT passes them over.
            for start, end in _joined(ranges) if self._unmapped else ():
                for at in range(start, end, PIECE_BYTES):
                    os.posix_fadvise(descriptor, at, min(PIECE_BYTES, end - at), os.POSIX_FADV_DONTNEED)
                    yield
            for piece in _pieces_of(spans_of(mappings, ranges)):
                self._advise(handle.fileno(), piece)
                yield
        finally:
            os.close(descriptor)

    def _advise(self, descriptor: int, spans: Sequence[tuple[int, int]]) -> None:
        """All spans; those that the kernel refuses one by one are said and skipped."""
        try:
            if process_madvise(descriptor, spans, self._advice) == sum(length for _, length in spans):
                self.mapped_bytes += sum(length for _, length in spans)
                return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOMEM):
                raise
        # Once more one by one: it stops at the first that it refuses.
        for span in spans:
            try:
                self.mapped_bytes += process_madvise(descriptor, (span,), self._advice)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOMEM):
                    raise
                self._refuse(_sentence(error))

    def _refuse(self, sentence: str) -> None:
        """The first one is kept: what follows mostly says the same."""
        self.refused = self.refused or sentence


def pages_in_memory(
    paths: Sequence[str], ranges: Sequence[ByteRange], pause: Callable[[], None] = lambda: None
) -> int | None:
    """Of the pages that lie in the ranges as a whole, those in the page cache; None: unknown, the kernel or the file system says no.

    To see whether a page-out did anything: madvise(2) promises nothing, and the kernel says that all went well also where pages stay
    because they are mapped elsewhere or locked. Costs up to 25 ms a GiB, in pieces with a `pause` between them.
    """
    counter, found, rested = PageCounter(), 0, time.thread_time()
    by_part: dict[int, list[tuple[int, int]]] = {}
    for one in ranges:
        by_part.setdefault(one.part, []).append((one.offset, one.length))
    try:
        for part, own in by_part.items():
            with counter.open(paths[part]):
                for start, end in _joined(own):
                    at, last = -(-start // PAGE_BYTES), end // PAGE_BYTES
                    while at < last:
                        pages = min(last - at, counter.slice_pages)
                        found += counter.count(at, pages).cached
                        at += pages
                        if counter.clock_seconds - rested >= COUNT_PIECE_SECONDS:
                            pause()
                            rested = counter.clock_seconds
    except OSError:
        return None
    return found


def _mappings_of(pid: int, paths: Sequence[str]) -> dict[str, list[Mapping]]:
    """Which mappings of a process show which of the files, by the files' device and inode. Raises OSError."""
    wanted: dict[tuple[int, int], str] = {}
    for path in paths:
        status = os.stat(path)
        wanted[status.st_dev, status.st_ino] = path
    found: dict[str, list[Mapping]] = {path: [] for path in paths}
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace", newline="\n") as file:
        mappings = file_mappings(file.read(MAPS_LIMIT_BYTES))
    known: dict[tuple[int, int], tuple[int, int]] = {}
    for mapping in mappings:
        printed = mapping.device, mapping.inode
        if printed not in known:
            known[printed] = _file_of(pid, mapping)
        path = wanted.get(known[printed], "")
        if path:
            found[path].append(mapping)
    return found


def _file_of(pid: int, mapping: Mapping) -> tuple[int, int]:
    """Device and inode as stat(2) has them. maps prints others on btrfs (of the whole file system) and overlayfs (of the layer below)."""
    try:
        status = os.stat(f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}")
    except OSError:
        # Needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE; without, what maps prints is right on most file systems.
        return mapping.device, mapping.inode
    return status.st_dev, status.st_ino


def may_page_out(descriptor: int) -> bool:
    """Whether the kernel's check of the file will pass: owner, CAP_FOWNER or write permission."""
    if os.fstat(descriptor).st_uid == os.geteuid() or _has_capability(_CAP_FOWNER):
        return True
    return os.access(f"/proc/self/fd/{descriptor}", os.W_OK, effective_ids=True)


def _has_capability(number: int) -> bool:
    with open("/proc/thread-self/status", encoding="utf-8", errors="replace") as file:
        line = next((line for line in file if line.startswith("CapEff:")), "CapEff: 0")
    return bool(int(line.split()[1], 16) >> number & 1)


def _pieces_of(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    """The spans in calls of `PIECE_BYTES` and `IOV_MAX` spans at most."""
    piece: list[tuple[int, int]] = []
    size = 0
    for start, length in spans:
        for at in range(start, start + length, PIECE_BYTES):
            part = min(PIECE_BYTES, start + length - at)
            if piece and (len(piece) == IOV_MAX or size + part > PIECE_BYTES):
                yield tuple(piece)
                piece, size = [], 0
            piece.append((at, part))
            size += part
    if piece:
        yield tuple(piece)


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges (offset, length) as (start, end) in file order, those that touch as one."""
    joined: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], start + length)
        elif length > 0:
            joined.append((start, start + length))
    return joined


def _sentence(error: OSError) -> str:
    if error.errno == errno.ENOSYS:
        return "this kernel cannot page out another process's memory (Linux 5.10 can)"
    if error.errno == errno.EPERM:
        return "the kernel refuses to page the backend's memory out; it takes CAP_SYS_NICE and CAP_SYS_PTRACE"
    if error.errno == errno.EINVAL:
        return "the kernel refuses to page out a part of the mapping; memory that is locked (mlock) stays"
    if isinstance(error, ProcessLookupError):
        return "the backend has ended"
    name = f" {error.filename}" if error.filename else ""
    return f"cannot page the model out{name}: {error.strerror or error}"
