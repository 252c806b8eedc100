"""Configuration files of the system that moetuned writes when it is told to: all of a set or none, whole, and flushed to the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Mapping

from moetuned.host.durable_file import sync_directory

_LIMIT_BYTES = 256 << 10
_MODE = 0o644


def read_system_file(path: str) -> str | None:
    """Text of a plain file (undecodable bytes replaced); None when there is none.

    Raises OSError, also for a link (ELOOP), what is no plain file (EINVAL), and one above 256 KiB (EFBIG).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no plain file", path)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(_LIMIT_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > _LIMIT_BYTES:
        raise OSError(errno.EFBIG, f"larger than {_LIMIT_BYTES >> 10} KiB", path)
    return content.decode("utf-8", "replace")


def replace_files(texts: Mapping[str, str | None]) -> None:
    """Give each path its text (mode 0644, directories made where they are missing), or remove it (None).

    All new texts are on the disk beside their files before the first file is replaced, so a full disk changes nothing. A
    reader sees the old file or the new one, never a part. Raises OSError.
    """
    prepared: dict[str, str] = {}
    try:
        for path, text in texts.items():
            if text is not None:
                prepared[path] = _prepare(path, text.encode())
        for path in texts:
            if path in prepared:
                os.replace(prepared[path], path)
                del prepared[path]
            else:
                _remove(path)
                _remove(_beside(path))
        for directory in {os.path.dirname(path) for path in texts}:
            with contextlib.suppress(FileNotFoundError):
                sync_directory(directory)
    finally:
        for beside in prepared.values():
            with contextlib.suppress(OSError):
                os.unlink(beside)


def _prepare(path: str, data: bytes) -> str:
    """A file beside `path` with `data`, flushed."""
    beside = _beside(path)
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    _remove(beside)  # left by one that was killed
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, _MODE)
            os.fsync(descriptor)
    except OSError as error:
        os.unlink(beside)
        raise OSError(error.errno, error.strerror, path) from None
    return beside


def _beside(path: str) -> str:
    """Its name has no ending that anybody would read it by."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.new")


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
