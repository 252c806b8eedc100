"""What an error of the kernel says about a rehearsal: a refusal is no; that something is not there, or takes too long, is not known.

EPERM and EACCES are what capabilities, owners and seccomp filters answer, EROFS what a read-only mount does, ENOSYS a kernel without the
call or a filter, EAFNOSUPPORT a filter of socket families (systemd.exec(5), RestrictAddressFamilies=).
"""

from __future__ import annotations

import errno
import os

from moetuned.host.systemd_booted import is_booted
from moetuned.schema.capability import Answer, Found

REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS, errno.EAFNOSUPPORT})
YES = Found(Answer.YES)
IN_CONTAINER = "/run/systemd/container"
"""There where systemd runs in a container; it says which kind."""


def of_error(error: OSError, what: str = "", cure: str = "") -> Found:
    """No where it is a refusal, else unknown. `what` was tried; `cure` is told with a no."""
    name = what or (str(error.filename) if error.filename else "it")
    why = f"{name}: {(error.strerror or str(error) or type(error).__name__)[:1].lower()}{(error.strerror or str(error))[1:]}"
    if error.errno == errno.ENOSYS:
        return no(
            f"{why}: this kernel is too old for it, or a filter hides it",
            "a newer kernel, or allow it in SystemCallFilter=",
        )
    if error.errno in REFUSALS:
        return no(why, cure)
    return unknown(why)


def cure_of_sandbox(error: OSError, options: str) -> str:
    """What to do where a file cannot be written: `options` in the unit's drop-in, or, where a container keeps it read-only, what helps there.

    A read-only /proc/sys or /sys without systemd as the service manager, or with one that runs in a container itself
    (/run/systemd/container, https://systemd.io/CONTAINER_INTERFACE), was mounted so by who made the container.
    """
    if error.errno == errno.EROFS and (not is_booted() or os.path.exists(IN_CONTAINER)):
        return "a container has /proc/sys and /sys read-only: run moetuned on the machine itself, or give the container both to write (--privileged)"
    return f"in a drop-in of moetuned.service: {options}"


def no(why: str, cure: str = "") -> Found:
    """Refused."""
    return Found(Answer.NO, why, cure)


def unknown(why: str) -> Found:
    """Not known, and why."""
    return Found(Answer.UNKNOWN, why)


def open_for_writing(path: str) -> None:
    """Open what is there for writing and write nothing; it is neither made nor cut. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
