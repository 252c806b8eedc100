"""Writes traces, one whole line after the other: whenever it is killed, the lines until then can be read.

A compressed one is flushed at each line (Z_SYNC_FLUSH), which costs about a tenth of its size. What cannot be written whole, e.g.
because the disk is full, is taken back. Only who made the file may read it, and no file is overwritten unasked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import zlib
from typing import Any

import msgspec

from moetuned.schema.sample import RawBackend, RawSample
from moetuned.state.trace import TraceBackend, TraceRecorder

_GZIP_WINDOW = 31
_SPARE_BYTES = 64
"""A line that does not compress grows by less than this, and the end of a gzip file is shorter."""


def first_line(
    sample: RawSample, backend: TraceBackend, static: dict[str, str | None], recorder: TraceRecorder
) -> bytes:
    """The line that says what is recorded. `sample` holds this backend alone."""
    extra = {"trace": 1, "backend": backend, "static": static, "recorder": recorder}
    return _line({**_body(sample), **extra})


def next_line(sample: RawSample) -> bytes:
    """Any other line. `sample` holds one backend alone."""
    return _line(_body(sample))


def _body(sample: RawSample) -> dict[str, Any]:
    (own,) = sample.backends.values() or (RawBackend(),)
    body: dict[str, Any] = {"t": sample.t, "wall": sample.wall, "files": sample.files, "http": own.http}
    if own.residency is not None:
        body["residency"] = own.residency
    return body


def _line(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body) + b"\n"


class TraceWriter:
    """One file. Belongs to one thread."""

    def __init__(
        self, path: str, limit_bytes: int, *, overwrite: bool = False, owner: tuple[int, int] | None = None
    ) -> None:
        """Makes the file, compressed when its name ends in .gz.

        `overwrite`: what has the name, if it is a plain file, is replaced at the first line that is written, and stays where none is.
        `owner`: user and group to give it to. Raises OSError:
        FileExistsError when the name is taken.
        """
        self.path = path
        self.lines = 0
        self.size_bytes = 0
        self._limit_bytes = limit_bytes
        self._packer = zlib.compressobj(wbits=_GZIP_WINDOW) if path.endswith(".gz") else None
        self._new_path = f"{path}.{os.getpid()}.new" if overwrite and _is_taken(path) else path
        # A new file never follows a link that somebody else put there.
        self._descriptor = os.open(self._new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        if owner is not None:
            os.fchown(self._descriptor, *owner)

    def write(self, line: bytes) -> bool:
        """Add a line; False, and nothing is written, when it would make the file larger than its limit. Raises OSError."""
        if self.size_bytes + len(line) + _SPARE_BYTES > self._limit_bytes:
            return False
        data = line
        if self._packer is not None:
            data = self._packer.compress(line) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        try:
            self._put(data)
            self._replace()
        except OSError:
            self._packer = None  # What it has seen is not in the file: nothing it would say now fits.
            raise
        self.lines += 1
        return True

    def close(self) -> None:
        """End the file. Raises OSError; the file is closed all the same."""
        packer, self._packer = self._packer, None
        if self._descriptor < 0:
            return
        try:
            if packer is not None:
                self._put(packer.flush(zlib.Z_FINISH))
        finally:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
            if self._new_path != self.path:
                os.unlink(self._new_path)  # nothing was written that could take the old one's place

    def discard(self) -> None:
        """Close the file and remove it: nothing worth keeping came into it."""
        with contextlib.suppress(OSError):
            self.close()
        with contextlib.suppress(OSError):
            if self._new_path == self.path:
                os.unlink(self.path)

    def _replace(self) -> None:
        """With its first line it takes the place of the old one."""
        if self._new_path != self.path:
            _is_taken(self.path)
            os.replace(self._new_path, self.path)
            self._new_path = self.path

    def _put(self, data: bytes) -> None:
        """All of it, or nothing."""
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size_bytes)
                os.lseek(self._descriptor, self.size_bytes, os.SEEK_SET)
            raise
        self.size_bytes += len(data)


def _is_taken(path: str) -> bool:
    """Whether there is a plain file of that name. Raises FileExistsError for anything else, OSError."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(status.st_mode):
        raise FileExistsError(errno.EEXIST, "it is no plain file", path)
    return True
