"""SHA-256 of a large file at the speed of the disk, without filling the page cache and without emptying it.

A thread reads the next piece while the one before is hashed, past the page cache (O_DIRECT), so a running backend keeps what it had and
gets nothing pushed out. Reading through the page cache and dropping it again is not enough: a page that carries the mark of an earlier
read-ahead starts the next one, also with POSIX_FADV_RANDOM and RWF_NOWAIT (measured, Linux 6.18), and what that brings looks like somebody
else's. It remains the way where a file system has no O_DIRECT: the kernel is asked before which pages are resident, and the others
are dropped; where it does not tell (another user's file), all are, which spares mapped pages (the kernel does not drop those).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import queue
import stat
import threading
from collections.abc import Callable, Iterator

import msgspec

from moetuned.host.page_cache import PAGE_BYTES, resident_pages
from moetuned.host.sha256_state import HashState, Sha256

PIECE_BYTES = 4 << 20
_BUFFERS = 2


class FileStamp(msgspec.Struct, frozen=True):
    """What tells that a file is still the same. Times in nanoseconds."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


class FileHashError(Exception):
    """A file could not be hashed; the message is one sentence without its name and says what to do."""


Follow = Callable[[int, HashState | None], bool]
"""Called after each piece with the bytes done and where the hash stands; False stops."""


def stamp_of(path: str) -> FileStamp:
    """The stamp of `path`, links followed. Raises OSError."""
    return _stamp(os.stat(path))


def hash_file(path: str, follow: Follow, start: HashState | None = None) -> str | None:
    """SHA-256 of the file as hex, going on from `start`; None when `follow` stopped it.

    Raises FileHashError, also when the file changed meanwhile.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise FileHashError(f"cannot be opened: {error.strerror}") from error
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise FileHashError("is no regular file")
        digest = _hash(path, descriptor, before.st_size, follow, start)
        if digest is not None and _stamp(os.fstat(descriptor)) != _stamp(before):
            raise FileHashError("was changed while it was read; wait until whatever writes it is done and verify again")
        return digest
    finally:
        os.close(descriptor)


def _hash(path: str, descriptor: int, size_bytes: int, follow: Follow, start: HashState | None) -> str | None:
    sha256 = Sha256(start)
    if sha256.done_bytes > size_bytes:
        raise FileHashError("became shorter; verify again")
    reading = _Reading(path, descriptor, sha256.done_bytes, size_bytes)
    try:
        for piece in reading.pieces():
            sha256.update(piece)
            if not follow(sha256.done_bytes, sha256.state()):
                return None
    finally:
        reading.close()
    return sha256.hexdigest()


def _stamp(status: os.stat_result) -> FileStamp:
    return FileStamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class _Reading:
    """A thread that reads pieces in order, one ahead of whoever takes them."""

    def __init__(self, path: str, descriptor: int, offset: int, end: int) -> None:
        self._offset, self._end = offset, end
        self._ready: queue.SimpleQueue[tuple[mmap.mmap, int] | FileHashError | None] = queue.SimpleQueue()
        self._free: queue.SimpleQueue[mmap.mmap | None] = queue.SimpleQueue()
        for _ in range(_BUFFERS):
            self._free.put(mmap.mmap(-1, PIECE_BYTES))
        # A daemon thread with a descriptor of its own: a disk that does not answer must not keep the program from ending.
        self._source = _Source(path, os.dup(descriptor))
        self._thread = threading.Thread(target=self._run, name="file-hash-reader", daemon=True)
        self._thread.start()

    def pieces(self) -> Iterator[memoryview]:
        """The pieces; each is valid until the next is asked for."""
        while (item := self._ready.get()) is not None:
            if isinstance(item, FileHashError):
                raise item
            buffer, length = item
            with memoryview(buffer) as whole, whole[:length] as piece:
                yield piece
            self._free.put(buffer)

    def close(self) -> None:
        """Let the thread end once its present read is over."""
        self._free.put(None)

    def _run(self) -> None:
        at = self._offset
        # Whoever takes the pieces waits for an end, so there must be one whatever happens here.
        end: FileHashError | None = FileHashError("could not be read to its end")
        try:
            while at < self._end and (buffer := self._free.get()) is not None:
                length = min(PIECE_BYTES, self._end - at)
                self._source.read(buffer, at, length)
                self._ready.put((buffer, length))
                at += length
            end = None
        except OSError as error:
            end = _failed(error, at)
        except FileHashError as error:
            end = error
        finally:
            self._source.close()
            self._ready.put(end)


class _Source:
    """Reads pieces of a file and leaves the page cache as it was."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._descriptor = descriptor
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        self._direct = _open_direct(path, descriptor)

    def read(self, buffer: mmap.mmap, offset: int, length: int) -> None:
        """Fill the first `length` bytes of `buffer` from `offset`. Raises OSError, FileHashError."""
        if self._direct is not None:
            try:
                # A direct read asks for whole blocks, also at the end of the file.
                _fill(self._direct, buffer, offset, length, -(-length // PAGE_BYTES) * PAGE_BYTES)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                os.close(self._direct)  # opened, but this file system cannot read so
                self._direct = None
            else:
                return
        try:
            resident = resident_pages(self._descriptor, offset, length)
        except OSError:
            resident = bytes(-(-length // PAGE_BYTES))
        try:
            _fill(self._descriptor, buffer, offset, length, length)
        finally:
            self._drop(offset, resident)

    def _drop(self, offset: int, resident: bytes) -> None:
        for first, last in dropped_runs(resident):
            os.posix_fadvise(
                self._descriptor, offset + first * PAGE_BYTES, (last - first) * PAGE_BYTES, os.POSIX_FADV_DONTNEED
            )

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
        if self._direct is not None:
            os.close(self._direct)


def _open_direct(path: str, descriptor: int) -> int | None:
    """The same file past the page cache; None where the file system cannot do that or the path is another file by now."""
    try:
        direct = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_DIRECT)
    except OSError:
        return None
    if os.path.sameopenfile(direct, descriptor):
        return direct
    os.close(direct)
    return None


def _fill(descriptor: int, buffer: mmap.mmap, offset: int, length: int, wanted: int) -> None:
    """Read until `length` bytes of a piece are there, asking for up to `wanted`."""
    done = 0
    with memoryview(buffer) as whole:
        while done < length:
            with whole[done:wanted] as rest:
                got = os.preadv(descriptor, [rest], offset + done)
            if got == 0:
                raise FileHashError("became shorter while it was read; wait until whatever writes it is done")
            done += got


def dropped_runs(resident: bytes) -> Iterator[tuple[int, int]]:
    """Runs (first, past the last) of pages that were not resident, from one byte a page: 1 resident, 0 not."""
    at = 0
    while (first := resident.find(0, at)) >= 0:
        last = resident.find(1, first)
        at = len(resident) if last < 0 else last
        yield first, at


def _failed(error: OSError, offset: int) -> FileHashError:
    if error.errno == errno.EIO:
        return FileHashError(
            f"cannot be read at byte {offset} or soon after: {error.strerror}; the disk is failing: look at the kernel log "
            "(dmesg), copy what matters and download the file to another disk"
        )
    return FileHashError(f"cannot be read at byte {offset} or soon after: {error.strerror}")
