"""A file that others read: replaced in one step, readable by all, in a directory that need not be ours alone."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

MODE = 0o644
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


def publish(path: str, data: bytes) -> tuple[int, int]:
    """Make the file say `data`, whole at every moment, mode 0644; returns its device and inode. It is not flushed to the disk: what it says
    is old within seconds.

    The directory may belong to another user, as node_exporter's often does: no link is followed on the way, and the file is a new one each
    time, so nobody can lead the write elsewhere. One that everybody may write to is refused. Raises OSError with `path` and a sentence's
    end; then what was there stays.
    """
    with _directory(path) as directory:
        name, beside = os.path.basename(path), f".{os.path.basename(path)}.new"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=directory)  # left by one that was killed
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(beside, flags, MODE, dir_fd=directory), "wb") as file:
                os.fchmod(file.fileno(), MODE)  # whatever the umask
                file.write(data)
                file.flush()
                status = os.fstat(file.fileno())
            os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(beside, dir_fd=directory)
            raise _named(error, path) from error
        return status.st_dev, status.st_ino


def unpublish(path: str, identity: tuple[int, int]) -> None:
    """Remove the file if it is still the one that `publish` made. Raises OSError with `path`."""
    with _directory(path) as directory:
        name = os.path.basename(path)
        try:
            status = os.lstat(name, dir_fd=directory)
            if (status.st_dev, status.st_ino) == identity:
                os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _named(error, path) from error


@contextlib.contextmanager
def _directory(path: str) -> Iterator[int]:
    """The directory of `path`, open, reached without following a link. Raises OSError."""
    current, walked = os.open("/", _LOOK), ""
    try:
        for part in os.path.dirname(path).split("/"):
            if part in ("", ".", ".."):
                continue
            walked += f"/{part}"
            try:
                following = os.open(part, _LOOK, dir_fd=current)
            except OSError as error:
                raise _named(_why_not(error, part, current, walked), path) from error
            os.close(current)
            current = following
        if os.fstat(current).st_mode & stat.S_IWOTH:
            raise OSError(errno.EPERM, f"everybody may write to {walked or '/'}; choose another directory", path)
        yield current
    finally:
        os.close(current)


def _why_not(error: OSError, part: str, above: int, walked: str) -> OSError:
    if error.errno == errno.ENOENT:
        return OSError(errno.ENOENT, f"there is no directory {walked}")
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.lstat(part, dir_fd=above).st_mode):
            return OSError(errno.ELOOP, f"{walked} is a link; name the directory that it leads to")
    return error


def _named(error: OSError, path: str) -> OSError:
    return OSError(error.errno or errno.EIO, error.strerror or str(error), path)
