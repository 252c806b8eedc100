"""Files with secrets that the configuration names: a token, headers with a password. Root's, and readable by nobody else.

What is in them is sent to somebody, so nobody else may choose the file: no directory on the way may be another user's to write in.
"""

from __future__ import annotations

import os
import shlex
import stat

LIMIT_BYTES = 64 << 10


class SecretFileError(Exception):
    """The file is not used; the text is one sentence with the cure, and holds nothing of what is in it."""


def read_secret(path: str) -> str:
    """The text of the file. Raises SecretFileError."""
    try:
        problem = _path_problem(path)
        if problem is None:
            return _read(path)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise SecretFileError(f"{path} {problem}")


def _path_problem(path: str) -> str | None:
    """Why somebody else could put another file there; None when nobody can. Names are looked at as they are written, links too."""
    current = os.path.abspath(path)
    for each in (current, os.path.realpath(current)):
        above = os.path.dirname(each)
        while True:
            status = os.lstat(above)
            if status.st_uid not in (0, os.geteuid()):
                return f"is not used: {above} belongs to user {status.st_uid}, not to root"
            if not stat.S_ISLNK(status.st_mode) and _others_write(status) and not status.st_mode & stat.S_ISVTX:
                return f"is not used: others can write in {above}; mend it with: chmod go-w {shlex.quote(above)}"
            if above == "/":
                break
            above = os.path.dirname(above)
        if (uid := os.lstat(each).st_uid) not in (0, os.geteuid()):
            return f"is not used: it belongs to user {uid}, not to root; mend it with: chown root {shlex.quote(path)}"
    return None


def _others_write(status: os.stat_result) -> bool:
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _read(path: str) -> str:
    # Non-blocking: a FIFO in place of the file must not make anybody wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()):
            raise SecretFileError(f"{path} is not used: it is no plain file of root")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SecretFileError(
                f"{path} is not used: others may read it; mend it with: chmod 600 {shlex.quote(path)}"
            )
        content = file.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise SecretFileError(f"{path} is not used: it is larger than {LIMIT_BYTES >> 10} KiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise SecretFileError(f"{path} is not used: it is no text (UTF-8)") from None
