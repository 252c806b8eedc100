"""Configuration files of the system that moetuned writes when it is told to: all of a set or none, whole, and flushed to the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Mapping

from moetuned.host.durable_file import sync_directory

_LIMIT_BYTES = 256 << 10
_MODE, _CLOSED_MODE = 0o644, 0o600


def read_system_file(path: str) -> str | None:
    """Text of a plain file (undecodable bytes replaced); None when there is none. Raises OSError as `read_system_bytes`."""
    content = read_system_bytes(path)
    return None if content is None else content.decode("utf-8", "replace")


def read_system_bytes(path: str) -> bytes | None:
    """A plain file as it is; None when there is none.

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
    return content


def is_closed(path: str) -> bool:
    """Whether ordinary users may not read (or enter) what is there; what is not there or cannot be looked at is not closed."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return not status.st_mode & (stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else stat.S_IROTH)


def free_backup(path: str) -> str:
    """A name beside `path` to keep what it says now under, that nothing has yet."""
    name, number = f"{path}.bak", 1
    while os.path.lexists(name):
        number += 1
        name = f"{path}.bak{number}"
    return name


def remove_beside(path: str) -> None:
    """Remove what one that was killed while it wrote `path` left beside it. Raises OSError."""
    with contextlib.suppress(NotADirectoryError):
        _remove(_beside(path))


def replace_files(texts: Mapping[str, str | bytes | None], closed: Collection[str] = ()) -> None:
    """Give each path its text (mode 0644, directories made where they are missing), or remove it (None).

    Those `closed`, and files that ordinary users could not read before, get mode 0600.

    All new texts are on the disk beside their files before the first file is replaced, so a full disk changes nothing. A
    reader sees the old file or the new one, never a part. Raises OSError.
    """
    prepared: dict[str, str] = {}
    try:
        for path, text in texts.items():
            if text is not None:
                mode = _CLOSED_MODE if path in closed or is_closed(path) else _MODE
                prepared[path] = _prepare(path, text.encode() if isinstance(text, str) else text, mode)
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


def _prepare(path: str, data: bytes, mode: int) -> str:
    """A file beside `path` with `data`, flushed."""
    beside = _beside(path)
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    _remove(beside)  # left by one that was killed
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
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
