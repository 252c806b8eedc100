"""Files of the machine behind one small protocol, so that tests can put a fixture tree or a fake kernel in its place."""

from __future__ import annotations

import errno
import os
import stat
from typing import Protocol

READ_LIMIT_BYTES = 4 << 20
_KERNELS = ("/proc/", "/sys/")


class HostFS(Protocol):
    """What may be done to files under /proc, /sys, /etc and /var. Paths are absolute as on the real machine."""

    def read_text(self, path: str, limit_bytes: int = READ_LIMIT_BYTES) -> str:
        """Content as text (undecodable bytes replaced), at most `limit_bytes`. Raises OSError, also for what is no plain file."""
        ...

    def write_text(self, path: str, text: str) -> None:
        """Write `text` with a single write(2), as /proc and /sys want it; creates nothing. Raises OSError."""
        ...

    def exists(self, path: str) -> bool:
        """Whether `path` exists (links followed)."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Names in a directory, sorted. Raises OSError."""
        ...

    def resolve_link(self, path: str) -> str:
        """The absolute path after following all links. Raises OSError."""
        ...


class RealFS:
    """The real files, or the same tree under `root` (a fixture)."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    def _at(self, path: str) -> str:
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path")
        return self._root + path

    def read_text(self, path: str, limit_bytes: int = READ_LIMIT_BYTES) -> str:
        """See `HostFS.read_text`. Outside the machine's own /proc and /sys it never waits: a FIFO, a terminal or a device is refused."""
        descriptor = self._open(path)
        try:
            chunks: list[bytes] = []
            left = limit_bytes
            while left > 0 and (chunk := os.read(descriptor, min(left, 1 << 16))):
                chunks.append(chunk)
                left -= len(chunk)
        finally:
            os.close(descriptor)
        return b"".join(chunks).decode("utf-8", "replace")

    def _open(self, path: str) -> int:
        """A descriptor to read from. Raises OSError."""
        place = self._at(path)
        if not self._root and path.startswith(_KERNELS):
            return os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        # Looked at before it is opened, too: opening some devices does something.
        _refuse_other_than_plain(os.stat(place), place)
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _refuse_other_than_plain(os.fstat(descriptor), place)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def write_text(self, path: str, text: str) -> None:
        """See `HostFS.write_text`."""
        descriptor = os.open(self._at(path), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        """See `HostFS.exists`."""
        return os.path.exists(self._at(path))

    def list_directory(self, path: str) -> list[str]:
        """See `HostFS.list_directory`."""
        return sorted(os.listdir(self._at(path)))

    def resolve_link(self, path: str) -> str:
        """See `HostFS.resolve_link`."""
        real = os.path.realpath(self._at(path), strict=True)
        return real.removeprefix(os.path.realpath(self._root)) if self._root else real


def _refuse_other_than_plain(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "no plain file", path)


def read_or_none(fs: HostFS, path: str, limit_bytes: int = READ_LIMIT_BYTES) -> str | None:
    """Content of a file that need not be there; None where it cannot be read. Never raises."""
    try:
        return fs.read_text(path, limit_bytes)
    except OSError:
        return None
