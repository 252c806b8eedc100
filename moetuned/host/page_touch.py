"""Brings ranges of files into the page cache and makes them stay. Imports almost nothing: it runs inside a backend's cgroup.

Each piece is asked for ahead (POSIX_FADV_WILLNEED), then really read: pages that were only read ahead are evicted first. A second
read puts them on the active list. The hints are small because the kernel cuts one hint to the read-ahead window or the device's
largest request, whichever is more (mm/readahead.c, force_page_cache_ra); measured, 128 KiB hints are as fast as 8 MiB ones.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

Range = tuple[int, int, int]
"""Index of the file, offset and length in bytes."""

PIECE_BYTES = 8 << 20
PIECES_AHEAD = 8
HINT_BYTES = 128 << 10
BUFFER_BYTES = 256 << 10
_SMALLEST_PIECE_BYTES = 256 << 10


class TouchError(Exception):
    """A file cannot be read; the text is one sentence with its path."""


def touch(
    paths: Sequence[str],
    ranges: Sequence[Range],
    twice: Sequence[Range],
    rate_bytes_per_second: int | None,
    wait: Callable[[float], bool],
    progress: Callable[[int], None],
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Touch `ranges` in order, each of `twice` (touched first) two times; returns the bytes done, each counted once.

    `wait(seconds)` is called after every piece, 0 when it is not to wait, and says True to stop. `progress(bytes)` follows each piece.
    Raises TouchError.
    """
    piece_bytes, ahead = PIECE_BYTES, PIECES_AHEAD
    if rate_bytes_per_second is not None:
        piece_bytes, ahead = max(_SMALLEST_PIECE_BYTES, min(PIECE_BYTES, rate_bytes_per_second // 4)), 1
    files = _Files(paths)
    buffer = memoryview(bytearray(BUFFER_BYTES))
    began, done = clock(), 0
    pieces = _pieces(ranges, twice, piece_bytes)
    coming: deque[tuple[Range, bool]] = deque()
    try:
        while True:
            while len(coming) < ahead and (following := next(pieces, None)) is not None:
                files.hint(following[0])
                coming.append(following)
            if not coming:
                return done
            piece, again = coming.popleft()
            files.read(piece, buffer)
            if again:
                files.read(piece, buffer)
            done += piece[2]
            progress(done)
            early = 0.0 if rate_bytes_per_second is None else began + done / rate_bytes_per_second - clock()
            if wait(max(0.0, early)):
                return done
    finally:
        files.close()


def _pieces(ranges: Sequence[Range], twice: Sequence[Range], piece_bytes: int) -> Iterator[tuple[Range, bool]]:
    for again, group in ((True, twice), (False, ranges)):
        for part, offset, length in group:
            for start in range(offset, offset + length, piece_bytes):
                yield (part, start, min(piece_bytes, offset + length - start)), again


class _Files:
    """The files, opened when first needed."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._descriptors: dict[int, int] = {}

    def hint(self, piece: Range) -> None:
        """Ask the kernel to read this soon; does not wait for it."""
        part, offset, length = piece
        descriptor = self._open(part)
        for start in range(offset, offset + length, HINT_BYTES):
            os.posix_fadvise(descriptor, start, min(HINT_BYTES, offset + length - start), os.POSIX_FADV_WILLNEED)

    def read(self, piece: Range, buffer: memoryview) -> None:
        """Read all of it into the same buffer again and again."""
        part, offset, length = piece
        descriptor, end = self._open(part), offset + length
        while offset < end:
            try:
                count = os.preadv(descriptor, [buffer[: min(BUFFER_BYTES, end - offset)]], offset)
            except OSError as error:
                raise TouchError(f"cannot read {self._paths[part]} at {offset}: {error.strerror}") from error
            if count == 0:
                raise TouchError(f"{self._paths[part]} ends at {offset}, before the model does")
            offset += count

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _open(self, part: int) -> int:
        descriptor = self._descriptors.get(part)
        if descriptor is None:
            path = self._paths[part]
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError as error:
                raise TouchError(f"cannot open {path}: {error.strerror}") from error
            self._descriptors[part] = descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TouchError(f"{path} is no regular file")
            # No read-ahead beyond what was asked for: the budget ends where it ends.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return descriptor
