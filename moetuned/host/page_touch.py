"""Brings ranges of files into the page cache and makes them stay. Imports almost nothing: it runs inside a backend's cgroup.

Several threads work at once, so that the disk has several requests to do. How a piece is touched:

- Long ranges that are read once: `sendfile` to /dev/null on descriptors of their own, in order. Nothing is copied, and the kernel's
  own read-ahead allocates large folios. Measured for 1 GiB: 0.06 to 0.12 CPU seconds, where `vmtouch -t` takes 0.2 to 0.8 and
  POSIX_FADV_WILLNEED, which allocates single pages, 0.25 to 0.4. It stops before read-ahead could run over the end of the range.
- Everything else that is read once: asked for ahead in small hints, exactly (the kernel cuts one hint to the read-ahead window or the
  device's largest request, mm/readahead.c force_page_cache_ra), then read, because pages that were only read ahead are the first
  to be evicted.
- What must stay, classic LRU: the same, read twice, which puts it on the active list. Against a stream of reads about a third of
  it stayed, of what was brought in through a mapping a quarter.
- What must stay, multi-gen LRU: there a page that is read, however often, stays in the oldest generation (nothing of it was left
  after the stream), and a page that a fault brings in starts in the youngest (mm/swap.c folio_add_lru): all of it stayed. So cold
  pages are populated through a mapping: MADV_POPULATE_READ, before Linux 5.14 MAP_POPULATE. A fault reads the read-ahead window
  around it and starts on the next, so this reaches beyond the range by up to half a window before and one and a half after.
"""

from __future__ import annotations

import _thread
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence

from moetuned.host.uncached import Mapping, ToRead, Uncached

Range = tuple[int, int, int]
"""Index of the file, offset and length in bytes."""
Job = tuple[str, tuple[Range, ...]]
"""How to touch, and what: STREAM one long range, the others ranges of a few MiB together."""

STREAM, ONCE, AGAIN, MAPPED = "stream", "once", "again", "mapped"
THREADS = 8
PIECE_BYTES = 4 << 20
"""A thread looks whether it is to pause after each."""
STREAM_BYTES = 64 << 20
"""A thread reads so much in order: read-ahead has to find its stride after each jump."""
HINT_BYTES = 128 << 10
CATCH_UP_SECONDS = 0.1
_SMALLEST_PIECE_BYTES = 256 << 10
_BUFFER_BYTES = 64 << 10
_STACK_BYTES = 512 << 10
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MADV_POPULATE_READ = 22
_LRU_SWITCH = "/sys/kernel/mm/lru_gen/enabled"


class TouchError(Exception):
    """A file cannot be read; the text is one sentence with its path."""


def multi_gen_lru(switch: str = _LRU_SWITCH) -> bool:
    """Whether pages age in generations (Documentation/admin-guide/mm/multigen_lru.rst: bit 0 is the main switch)."""
    try:
        with open(switch, encoding="ascii") as file:
            return int(file.read(), 16) & 1 == 1
    except (OSError, ValueError):
        return False


class Touching:
    """Touches `ranges` in order, `twice` (what must stay) before them. Watch `fileno()` for its end.

    `mapped`: bring `twice` in through a mapping. With a rate one thread works, in pieces of a quarter of a second; what is in memory already
    does not count for it.
    """

    def __init__(
        self,
        paths: Sequence[str],
        ranges: Sequence[Range],
        twice: Sequence[Range],
        *,
        rate_bytes_per_second: int | None = None,
        mapped: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Nothing is touched before `start`."""
        self._paths = paths
        self._rate: float | None = rate_bytes_per_second
        self._limit: float | None = None
        self._clock, self._sleep = clock, sleep
        self._piece_bytes, self._threads = PIECE_BYTES, THREADS
        if rate_bytes_per_second is not None:
            self._piece_bytes = max(_SMALLEST_PIECE_BYTES, min(PIECE_BYTES, rate_bytes_per_second // 4))
            self._threads = 1
        reaches: dict[int, tuple[int, int | None]] = {}

        def stream_end(part: int, offset: int, length: int) -> int:
            if rate_bytes_per_second is not None or length < STREAM_BYTES // 2:
                return offset
            if part not in reaches:
                reaches[part] = _size_and_reach(paths[part])
            size, reach = reaches[part]
            end = offset + length
            if reach is None or end >= size:
                return end if end == size else offset
            return max(offset, end - reach)

        self._to_read = ToRead(Uncached(paths)) if rate_bytes_per_second is not None else None
        self.populate = Populate() if mapped and twice else None
        self._jobs = jobs(ranges, twice, MAPPED if self.populate else AGAIN, self._piece_bytes, stream_end)
        self._lock = _thread.allocate_lock()
        self._gate = _thread.allocate_lock()
        self._paused = self._stopped = False
        self._alive = self._in_flight = 0
        self._due = float("-inf")
        self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.done_bytes = 0
        """Each byte counted once."""
        self.error: TouchError | None = None

    def start(self) -> None:
        """Begin."""
        previous = _thread.stack_size(_STACK_BYTES)
        self._alive = self._threads
        for _ in range(self._threads):
            _thread.start_new_thread(self._work, ())
        _thread.stack_size(previous)

    def fileno(self) -> int:
        """Becomes readable when it has ended: finished, stopped or failed."""
        return self._ended

    @property
    def ended(self) -> bool:
        """Whether no thread works any more."""
        with self._lock:
            return self._alive == 0

    @property
    def idle(self) -> bool:
        """Whether no piece is being read at this moment."""
        return self._in_flight == 0

    def pause(self) -> None:
        """Start no piece until `resume`. A piece that is being read is finished, after that nothing is in flight."""
        if not self._paused and not self._stopped:
            self._paused = True
            self._gate.acquire()

    def resume(self) -> None:
        """Go on."""
        if self._paused:
            self._paused = False
            self._gate.release()

    def limit(self, bytes_per_second: float | None) -> None:
        """Be no faster than this from now on, whatever rate it was begun with; None: only that one counts."""
        self._limit = bytes_per_second

    def stop(self) -> None:
        """Start no piece any more, ever."""
        self._stopped = True
        self.resume()

    def close(self) -> None:
        """Only once it has ended."""
        os.close(self._ended)

    def _work(self) -> None:
        files = _Files(self._paths)
        try:
            while (job := self._take()) is not None:
                self._do(files, *job)
        except TouchError as error:
            self.error, self._stopped = self.error or error, True
        finally:
            files.close()
            with self._lock:
                self._alive -= 1
                os.eventfd_write(self._ended, 1)

    def _take(self) -> Job | None:
        with self._lock:
            return None if self._stopped else next(self._jobs, None)

    def _do(self, files: _Files, how: str, ranges: tuple[Range, ...]) -> None:
        pieces = split(ranges[0], self._piece_bytes) if how == STREAM else iter((None,))
        for piece in pieces:
            if not self._may_begin(ranges if piece is None else (piece,)):
                return
            try:
                if piece is not None:
                    files.read(piece, in_order=True)
                    self._count(piece[2])
                else:
                    self._do_together(files, how, ranges)
            finally:
                with self._lock:
                    self._in_flight -= 1

    def _do_together(self, files: _Files, how: str, ranges: tuple[Range, ...]) -> None:
        if how != MAPPED:
            for piece in ranges:
                files.hint(piece)
        for piece in ranges:
            if how == MAPPED:
                assert self.populate is not None
                files.populate(piece, self.populate)
            else:
                files.read(piece)
                if how == AGAIN:
                    files.read(piece)
            self._count(piece[2])

    def _may_begin(self, ranges: Sequence[Range]) -> bool:
        """Wait until the rate allows more and while it pauses; whether to read the next piece, which is in flight from then on."""
        length = sum(one[2] for one in ranges)
        turn = self._turn(length, length if self._to_read is None else self._to_read(ranges, length))
        while not self._stopped and (early := turn - self._clock()) > 0:
            self._sleep(min(early, 0.1))
        with self._gate:
            if self._stopped:
                return False
            with self._lock:
                self._in_flight += 1
            return True

    def _turn(self, length: int, to_read: int) -> float:
        """When a piece of `length`, of which this has `to_read` from the disk, may begin. What a pause or a slow disk left unread is not
        caught up. The limit is of all that is touched, for the sake of memory bandwidth.
        """
        with self._lock:
            now = self._clock()
            rate, limit = self._rate, self._limit
            if rate is None and limit is None:
                return now
            turn = max(self._due, now - CATCH_UP_SECONDS)
            self._due = turn + max(0 if rate is None else to_read / rate, 0 if limit is None else length / limit)
            return turn

    def _count(self, length: int) -> None:
        with self._lock:
            self.done_bytes += length


def split(one: Range, piece_bytes: int) -> Iterator[Range]:
    """A range in pieces."""
    part, offset, length = one
    for start in range(offset, offset + length, piece_bytes):
        yield part, start, min(piece_bytes, offset + length - start)


def jobs(
    ranges: Sequence[Range],
    twice: Sequence[Range],
    stay: str,
    piece_bytes: int,
    stream_end: Callable[[int, int, int], int],
) -> Iterator[Job]:
    """What the threads take, in order. `stay`: how to touch `twice`; `stream_end(part, offset, length)`: how far a range may be streamed.

    Small ranges come together in one job, so that all are asked for before the first is waited for.
    """
    batch: list[Range] = []
    room = piece_bytes
    for how, group in ((stay, twice), (ONCE, ranges)):
        for part, offset, length in group:
            end = offset + length
            streamed = stream_end(part, offset, length) if how == ONCE else offset
            if streamed > offset and batch:
                yield how, tuple(batch)
                batch, room = [], piece_bytes
            for chunk in split((part, offset, streamed - offset), STREAM_BYTES):
                yield STREAM, (chunk,)
            while streamed < end:
                take = min(room, end - streamed)
                batch.append((part, streamed, take))
                streamed, room = streamed + take, room - take
                if room == 0:
                    yield how, tuple(batch)
                    batch, room = [], piece_bytes
        if batch:
            yield how, tuple(batch)
            batch, room = [], piece_bytes


def _size_and_reach(path: str) -> tuple[int, int | None]:
    """Size of a file, and how far beyond where it is read read-ahead may be, both in bytes; None when that is unknown or it is off.

    POSIX_FADV_SEQUENTIAL doubles the window (mm/fadvise.c), and a second window may be on its way (mm/readahead.c).
    """
    try:
        status = os.stat(path)
    except OSError:
        return 0, None
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    try:
        with open(f"/sys/class/bdi/{device}/read_ahead_kb", encoding="ascii") as file:
            window = int(file.read()) << 10
    except (OSError, ValueError):
        return status.st_size, None
    return status.st_size, 4 * window or None


class Populate(Mapping):
    """Populates mappings. mmap.madvise keeps the interpreter's lock while it waits, so libc is called."""

    def __init__(self) -> None:
        super().__init__()
        self.advice: int | None = _MADV_POPULATE_READ
        """None: the kernel knows no such advice."""

    def __call__(self, descriptor: int, offset: int, length: int) -> None:
        """Fault all pages of a range in; its start is rounded down to a page. Raises OSError: EFAULT for what cannot be read."""
        before = offset % _PAGE_BYTES
        offset, length = offset - before, length + before
        flags = self._shared if self.advice is not None else self._shared | self._populate
        address = self._libc.mmap(None, length, self._read, flags, descriptor, offset)
        if address == self._failed:
            raise self._last_error()
        try:
            if self.advice is None or self._libc.madvise(address, length, self.advice) == 0:
                return
            error = self._last_error()
        finally:
            self._libc.munmap(address, length)
        if error.errno != errno.EINVAL:
            raise error
        self.advice = None
        self(descriptor, offset, length)

    def _last_error(self) -> OSError:
        number = self._get_errno()
        return OSError(number, os.strerror(number))


class _Files:
    """The files, opened when first needed; each thread has its own, because read-ahead remembers where a descriptor was read."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._descriptors: dict[tuple[int, int], int] = {}
        self._null: int | None = None
        self._buffer: memoryview | None = None

    def hint(self, piece: Range) -> None:
        """Ask the kernel to read this soon; does not wait for it."""
        part, offset, length = piece
        descriptor = self._open(part, os.POSIX_FADV_RANDOM)
        for start in range(offset, offset + length, HINT_BYTES):
            os.posix_fadvise(descriptor, start, min(HINT_BYTES, offset + length - start), os.POSIX_FADV_WILLNEED)

    def read(self, piece: Range, *, in_order: bool = False) -> None:
        """Read all of it, to nowhere."""
        part, offset, length = piece
        # Out of order, no read-ahead beyond what was asked for: the budget ends where it ends.
        descriptor = self._open(part, os.POSIX_FADV_SEQUENTIAL if in_order else os.POSIX_FADV_RANDOM)
        end = offset + length
        while offset < end:
            try:
                count = self._read(descriptor, offset, end - offset)
            except OSError as error:
                raise TouchError(f"cannot read {self._paths[part]} at {offset}: {error.strerror}") from error
            if count == 0:
                raise TouchError(f"{self._paths[part]} ends at {offset}, before the model does")
            offset += count

    def populate(self, piece: Range, populate: Populate) -> None:
        """Fault it in."""
        part, offset, length = piece
        descriptor = self._open(part, os.POSIX_FADV_NORMAL)
        size = os.fstat(descriptor).st_size
        if size < offset + length:
            raise TouchError(f"{self._paths[part]} ends at {size}, before the model does")
        try:
            populate(descriptor, offset, length)
        except OSError as error:
            raise TouchError(f"cannot read {self._paths[part]} at {offset}: {error.strerror}") from error

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
        if self._null is not None:
            os.close(self._null)
            self._null = None

    def _read(self, descriptor: int, offset: int, length: int) -> int:
        if self._buffer is None:
            if self._null is None:
                self._null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                return os.sendfile(self._null, descriptor, offset, length)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise
            # This file system cannot splice.
            self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        return os.preadv(descriptor, [self._buffer[: min(_BUFFER_BYTES, length)]], offset)

    def _open(self, part: int, advice: int) -> int:
        descriptor = self._descriptors.get((part, advice))
        if descriptor is None:
            path = self._paths[part]
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError as error:
                raise TouchError(f"cannot open {path}: {error.strerror}") from error
            self._descriptors[part, advice] = descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TouchError(f"{path} is no regular file")
            os.posix_fadvise(descriptor, 0, 0, advice)
        return descriptor
