"""A process of another user, to try on it what is done to a backend that runs as one: a child of ours, or one that is there anyway.

What is tried on one that is there anyway must not change it: an empty call, signal 0, an open.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator

import msgspec

NOBODY = 65534
"""The overflow user and group (include/linux/highuid.h)."""
_READY_SECONDS = 2.0
_MOST_DESCRIPTORS = 1 << 16
_MOST_LOOKED_AT = 20_000


class Stranger(msgspec.Struct, frozen=True):
    """A process of another user; `ours`: our own child, which may be stopped."""

    pid: int
    ours: bool


@contextlib.contextmanager
def waiting_child(prepare: Callable[[], None] = lambda: None) -> Iterator[int | None]:
    """A child of ours that waits, for the time of the context, after `prepare`; None: it was refused that, or killed for it.

    Call it in a process with one thread only. The child ends when its pipe does, so also where we may not signal it, or are killed.
    """
    (ready, tell), (hold, held) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _close_all_but(tell, hold)
            prepare()
            os.write(tell, b"1")
            os.read(hold, 1)
        finally:
            os._exit(0)
    os.close(tell)
    os.close(hold)
    try:
        poll = select.poll()
        poll.register(ready, select.POLLIN)
        yield child if poll.poll(_READY_SECONDS * 1000) and os.read(ready, 1) == b"1" else None
    finally:
        os.close(ready)
        os.close(held)
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextlib.contextmanager
def stranger() -> Iterator[Stranger | None]:
    """One for the time of the context; None: there is none, and none can be made. See `waiting_child`."""
    with waiting_child(_become_nobody) as child:
        if child is not None and os.geteuid() != NOBODY:
            yield Stranger(child, ours=True)
        else:
            other = _any_other()
            yield None if other is None else Stranger(other, ours=False)


def _become_nobody() -> None:
    """Raises PermissionError."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _close_all_but(*kept: int) -> None:
    """Whoever waits for the end of a pipe of ours must not wait for the child."""
    first = 3
    for one in (*sorted(kept), _MOST_DESCRIPTORS):
        os.closerange(first, one)
        first = one + 1


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
