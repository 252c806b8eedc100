"""A process of another user, to try on it what is done to a backend that runs as one: a child of ours, or one that is there anyway.

What is tried on one that is there anyway must not change it: an empty call, signal 0, an open.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
from collections.abc import Iterator

import msgspec

NOBODY = 65534
"""The overflow user and group (include/linux/highuid.h)."""
LIFE_SECONDS = 5
_READY_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1
_MOST_LOOKED_AT = 20_000


class Stranger(msgspec.Struct, frozen=True):
    """A process of another user; `ours`: our own child, which may be stopped."""

    pid: int
    ours: bool


@contextlib.contextmanager
def stranger() -> Iterator[Stranger | None]:
    """One for the time of the context; None: there is none, and none can be made. Call it in a process with one thread only."""
    child, reading = _fork()
    try:
        if _became_nobody(reading):
            yield Stranger(child, ours=True)
        else:
            other = _any_other()
            yield None if other is None else Stranger(other, ours=False)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _fork() -> tuple[int, int]:
    """A child that becomes nobody and says so; its pid and where it says it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    try:
        os.close(reading)
        # Ended with us whatever becomes of us, and by itself where even that is refused.
        signal.setitimer(signal.ITIMER_REAL, LIFE_SECONDS)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        os.write(writing, b"1")
        while True:
            signal.pause()
    finally:
        os._exit(1)


def _became_nobody(reading: int) -> bool:
    """An end of file is a child that was refused, or killed for it."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    return os.geteuid() != NOBODY and bool(poll.poll(_READY_SECONDS * 1000)) and os.read(reading, 1) == b"1"


def _any_other() -> int | None:
    """A process of another user that has memory; None where none can be seen."""
    own = os.geteuid()
    for name in os.listdir("/proc")[:_MOST_LOOKED_AT]:
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid == own:
                continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read(1):
                    return int(name)
        except OSError:
            continue
    return None
