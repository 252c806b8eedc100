"""Whether a program that the administrator named may be run as root: nobody else can change it, nor put another one in its place."""

from __future__ import annotations

import os
import stat


def distrust(path: str) -> str | None:
    """Why what `path` leads to may not be run as root, with the command that mends it; None when it may.

    It and every directory above must belong to root (or to the user this runs as) and be writable by nobody else; directories like
    /tmp, where only owners can rename (sticky bit), may lie above. A link is judged by what it leads to. Raises OSError when it cannot
    be looked at.
    """
    trusted = {0, os.geteuid()}
    real = os.path.realpath(path, strict=True)
    current = real
    while True:
        status = os.stat(current)
        if status.st_uid not in trusted:
            return (
                f"{current} belongs to user {status.st_uid}, not to root; mend it with: chown root {_quoted(current)}"
            )
        writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if writable and (current == real or not status.st_mode & stat.S_ISVTX):
            return f"{current} can be written by others than root; mend it with: chmod go-w {_quoted(current)}"
        if current == "/":
            return None
        current = os.path.dirname(current)


def _quoted(path: str) -> str:
    import shlex  # only where something is wrong

    return shlex.quote(path)
