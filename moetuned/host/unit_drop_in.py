"""The drop-in that an adopted unit has: read, written and taken away. Nobody but root may have a hand in where it lies."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable

from moetuned.decide.unit_adoption import made_directory
from moetuned.host.system_file import read_system_file, replace_files


def read_drop_in(path: str) -> str | None:
    """Text of the drop-in; None where there is none. Raises OSError, also for links, what is no plain file, and a directory or a file
    that another user than this one (root) could write to.
    """
    if not _check(os.path.dirname(path), stat.S_ISDIR, "no directory of root's alone"):
        return None
    _check(path, stat.S_ISREG, "no plain file of root's alone")
    return read_system_file(path)


def write_drop_in(path: str, text: str) -> None:
    """Write it in one step, mode 0644, with its directory. Raises OSError; then nothing has changed."""
    read_drop_in(path)
    there = os.path.isdir(os.path.dirname(path))
    try:
        replace_files({path: text})
    except OSError:
        if not there:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(path))
        raise


def remove_drop_in(path: str) -> None:
    """Remove it, and its directory where that was made for it and nothing else is in it. Raises OSError."""
    text = read_drop_in(path)
    if text is None:
        return
    replace_files({path: None})
    if made_directory(text):
        try:
            os.rmdir(os.path.dirname(path))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def _check(path: str, is_kind: Callable[[int], bool], problem: str) -> bool:
    """Whether it is there. Raises OSError with `problem`."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not is_kind(status.st_mode) or status.st_uid not in (0, os.geteuid()) or others:
        raise OSError(errno.EPERM, problem, path)
    return True
