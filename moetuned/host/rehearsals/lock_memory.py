"""Memory of a model can be locked (mlock2(2)).

For: `warm.protect`.

Tried: the limit (RLIMIT_MEMLOCK) is raised and a mapping without a page in it is locked, for each page as it comes (MLOCK_ONFAULT): nothing is in memory for it. First one page, then a quarter of the machine's memory.

No: not even a page may be locked: no CAP_IPC_LOCK and `LimitMEMLOCK=0`, or a `SystemCallFilter=` without @memlock.

Unknown: a page may be locked, but not as much as a model may need.

Do: CAP_IPC_LOCK in `CapabilityBoundingSet=`, or `LimitMEMLOCK=infinity`, in a drop-in of moetuned.service; or `warm.protect: off`.
"""

from __future__ import annotations

import ctypes
import mmap
import os

from moetuned.host.locked_pages import PAGE_BYTES, LockError, allow_locking
from moetuned.host.rehearsal_answers import YES, no, unknown
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts
from moetuned.schema.units import format_bytes

CALLS = ("mlock", "mlock2", "setrlimit", "getrlimit")
_ONFAULT = 1
_CURE = "in a drop-in of moetuned.service: LimitMEMLOCK=infinity or CAP_IPC_LOCK in CapabilityBoundingSet=; or warm.protect: off"


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Where anything is to be locked."""
    return (Need("mlock2", (Action.PROTECT,)),) if facts.protects else ()


def rehearse(_need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    refused = _lock(PAGE_BYTES)
    if refused is not None:
        return no(f"nothing can be locked: {refused}", _CURE)
    much = os.sysconf("SC_PHYS_PAGES") // 4 * PAGE_BYTES
    refused = _lock(much)
    return YES if refused is None else unknown(f"{format_bytes(much)} cannot be locked: {refused}")


def _lock(size_bytes: int) -> str | None:
    """Why not; None: it can be."""
    try:
        allow_locking(size_bytes)
    except (LockError, OSError, ValueError) as error:
        return str(error)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mlock2.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        address = ctypes.addressof(ctypes.c_char.from_buffer(area))
        failed = libc.mlock2(address, size_bytes, _ONFAULT) != 0
        number = ctypes.get_errno()
    return os.strerror(number) if failed else None
