"""Removes what runs outside of the daemon's unit (`host/outside_sandbox.py`) have left in /run: those of a daemon that was killed, or of a try
that was ended at its deadline. For a daemon that starts.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time

DIRECTORY = "/run/moetuned/outside"
YOUNG_SECONDS = 60.0
"""What is younger may be somebody else's whose unit is only about to be started."""
MOST = 200
"""So many at a start; what is left is for the next."""
_NAME = re.compile(r"moetuned-run-[0-9a-f]{16}")
_FILES = ("environment", "end")


def sweep(directory: str = DIRECTORY) -> int:
    """Remove what belongs to no unit that runs; how many that were. Never raises. Blocks for at most 10 s, and only where something is left.

    Links are not followed, what is another user's or has other files in it stays, and all stays where systemd does not answer.
    """
    try:
        place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        names = sorted(name for name in os.listdir(place) if _NAME.fullmatch(name) and _is_old(place, name))[:MOST]
        if not names:
            return 0
        from moetuned.host.unit_states import ended_units

        ended = ended_units([f"{name}.service" for name in names])
        return sum(_remove(place, name) for name in names if f"{name}.service" in ended)
    except OSError:
        return 0
    finally:
        os.close(place)


def _is_old(place: int, name: str) -> bool:
    try:
        found = os.stat(name, dir_fd=place, follow_symlinks=False)
    except OSError:
        return False
    age_seconds = time.time() - found.st_mtime
    # A clock that was set back: no age can be told, and it is old.
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not 0 <= age_seconds < YOUNG_SECONDS


def _remove(place: int, name: str) -> bool:
    try:
        inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    except OSError:
        return False
    try:
        for each in _FILES:
            with contextlib.suppress(OSError):
                os.unlink(each, dir_fd=inside)
        os.rmdir(name, dir_fd=place)
    except OSError:
        return False
    finally:
        os.close(inside)
    return True
