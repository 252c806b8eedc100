"""Keeps the C library from giving each thread a heap of its own: in a small daemon with a few lanes those cost more than they save."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8
"""mallopt(3)."""


def use_one_arena() -> bool:
    """Threads that allocate for the first time from now on share one heap. False where the C library knows no such thing (musl)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_ARENA_MAX, 1))
