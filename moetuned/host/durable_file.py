"""Files that must outlive the process: private directory, one holder, appended and flushed to the disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat


class NotPrivateError(OSError):
    """A directory or file belongs to somebody else or others can write in it; what lies there cannot be trusted."""

    def __init__(self, path: str, problem: str) -> None:
        # As any other OSError has them: who shows `strerror` beside a path of its own shows the problem.
        super().__init__(errno.EPERM, problem, path)

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


def make_private_directory(directory: str) -> None:
    """Make `directory` (mode 0700, its parents too where they are missing) and flush the name to the disk.

    One that exists is taken only if it is ours and nobody else can write in it. Raises OSError, `NotPrivateError`.
    """
    if not os.path.isdir(directory):
        parent = os.path.dirname(directory) or "/"
        os.makedirs(parent, 0o755, exist_ok=True)
        os.mkdir(directory, 0o700)
        sync_directory(parent)
    status = os.stat(directory)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotPrivateError(
            directory, "must belong to the user moetuned runs as and be writable by nobody else (chmod 0700)"
        )


def lock_directory(directory: str) -> int:
    """Take the directory for this process until the descriptor is closed or the process ends, however it ends.

    The lock (flock) is on the directory itself, so it leaves no file and survives removal of files in it. Raises
    BlockingIOError when another process has it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_private(path: str, limit_bytes: int) -> bytes:
    """Content of a file that is no link and belongs to us or root; b"" when there is none.

    Raises OSError, also (EFBIG) for a file above `limit_bytes`.
    """
    try:
        # Non-blocking: a FIFO in place of the file must not make anybody wait.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        check_private(descriptor, path)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(limit_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"larger than {limit_bytes} bytes", path)
    return content


def check_private(descriptor: int, path: str) -> None:
    """Raises NotPrivateError for an open file that is none, or belongs neither to us nor to root."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()):
        raise NotPrivateError(path, "is no plain file of root")


def write_durably(path: str, data: bytes, offset: int) -> None:
    """Make `data` the end of the file from `offset` on (made with mode 0600) and flush it to the disk.

    What lay behind `offset`, a line torn by an earlier failure, is cut off. On failure what was written is taken back
    as far as possible and OSError raised.
    """
    created = not os.path.lexists(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size != offset:
            os.ftruncate(descriptor, offset)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(descriptor, data[done:], offset + done)
            os.fsync(descriptor)
            if created:
                sync_directory(os.path.dirname(path))
        except OSError:
            os.ftruncate(descriptor, offset)
            raise
    finally:
        os.close(descriptor)


def replace_durably(path: str, data: bytes) -> None:
    """Make the file say `data` and nothing else, in one step, with mode 0600, and flush it to the disk. It is replaced, link or not.

    Raises OSError with `path`, whatever step failed; then what was there stays.
    """
    beside = f"{path}.new"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)  # left by one that was killed
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        sync_directory(os.path.dirname(path))
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), path) from error


def remove_durably(path: str, keep_as: str | None = None) -> None:
    """Remove the file, or rename it to `keep_as`; no error when there is none. Raises OSError."""
    try:
        if keep_as is None:
            os.unlink(path)
        else:
            os.replace(path, keep_as)
    except FileNotFoundError:
        return
    sync_directory(os.path.dirname(path))


def sync_directory(directory: str) -> None:
    """Flush the names in a directory to the disk: a file that was made, renamed or removed in it. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
