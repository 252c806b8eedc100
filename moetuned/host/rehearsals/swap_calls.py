"""swapon(2) and swapoff(2) are allowed.

For: swap files and zram.

Tried: both calls for a path at which nothing is; the kernel checks the right first (EPERM) and the path then (ENOENT). Where the service may
not, swapon(2) as a unit of its own outside of the service, as swap is then made and taken away.

No: no CAP_SYS_ADMIN in `CapabilityBoundingSet=` or a `SystemCallFilter=` without @swap, and nothing may be run outside; a filter that kills
instead of refusing; a container, or not root.

Unknown: the kernel has no swap.

Do: CAP_SYS_ADMIN in `CapabilityBoundingSet=` and @swap in `SystemCallFilter=`, in a drop-in of moetuned.service.
"""

from __future__ import annotations

import ctypes
import errno
import os

from moetuned.host.outside_sandbox import can_leave
from moetuned.host.rehearsal_answers import YES, no, unknown
from moetuned.host.swap_devices import swap_on_outside
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("swapoff", "swapon")
_NOTHING = "/proc/self/moetuned-rehearsal-of-no-swap"
_CURE = "in a drop-in of moetuned.service: CAP_SYS_ADMIN in CapabilityBoundingSet=, @swap in SystemCallFilter="


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Both, where swap is wished for."""
    actions = (*((Action.SWAP_FILE,) if facts.swap_file else ()), *((Action.ZRAM,) if facts.zram else ()))
    return tuple(Need(call, actions) for call in CALLS) if actions else ()


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (os.fsencode(_NOTHING), 0) if need.subject == "swapon" else (os.fsencode(_NOTHING),)
    getattr(libc, need.subject)(*arguments)
    number = ctypes.get_errno()
    if number == errno.EPERM and can_leave():
        number = swap_on_outside(_NOTHING, 0)
    if number in (errno.ENOENT, errno.EINVAL):
        return YES
    if number == errno.EPERM:
        return no(f"{need.subject}(2) is not permitted", _CURE)
    return unknown(f"{need.subject}(2): {os.strerror(number)}")
