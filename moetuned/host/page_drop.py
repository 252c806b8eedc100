"""Drops pages of files from the page cache (POSIX_FADV_DONTNEED).

The kernel keeps what a process has mapped, locked or is just reading, what lies in a large folio that is not wholly asked for, and
what is not written to the disk yet (mm/fadvise.c, mm/truncate.c: mapping_evict_folio). It needs no right but that to read the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from moetuned.host.page_cache import PAGE_BYTES

PIECE_BYTES = 1 << 30

Follow = Callable[[int], None]
"""Called with the bytes done so far."""


def drop_pages(path: str, runs: Sequence[tuple[int, int]] | None = None, follow: Follow = lambda _done: None) -> None:
    """Drop the pages (first, past the last) of `runs`, None: of the whole file, in pieces. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        # A copy or download that has just ended is still being written; only clean pages can go.
        os.fdatasync(descriptor)
        if runs is None:
            runs = ((0, -(-os.fstat(descriptor).st_size // PAGE_BYTES)),)
        done = 0
        for first, last in runs:
            for page in range(first, last, PIECE_BYTES // PAGE_BYTES):
                pages = min(PIECE_BYTES // PAGE_BYTES, last - page)
                os.posix_fadvise(descriptor, page * PAGE_BYTES, pages * PAGE_BYTES, os.POSIX_FADV_DONTNEED)
                done += pages * PAGE_BYTES
                follow(done)
    finally:
        os.close(descriptor)
