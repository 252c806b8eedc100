"""Whether a process that was killed has ended: the kernel tells that a moment after the signal."""

from __future__ import annotations

import os
import select

_PATIENCE_MS = 20_000


def has_ended_soon(pid: int) -> bool:
    """Waits for the end of `pid`, at most 20 s; a zombie that nobody has waited for yet has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(_PATIENCE_MS))
    finally:
        os.close(descriptor)
