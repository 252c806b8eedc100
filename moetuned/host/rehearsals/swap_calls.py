"""swapon(2) and swapoff(2) are allowed.

For: swap files and zram.

Tried: both calls for a path at which nothing is; the kernel checks the right first (EPERM) and the path then (ENOENT). What the unit may not do is tried as the action does it, outside of the unit.

No: a container, not root, or no CAP_SYS_ADMIN in `CapabilityBoundingSet=` or a `SystemCallFilter=` without @swap where systemd cannot run it outside.

Unknown: the kernel has no swap.

Do: install a D-Bus (package dbus), or CAP_SYS_ADMIN in `CapabilityBoundingSet=` and `SystemCallFilter=@swap`, in a drop-in of moetuned.service.
"""

from __future__ import annotations

import ctypes
import errno
import os

from moetuned.host.outside_sandbox import can_leave
from moetuned.host.rehearsal_answers import YES, no, unknown
from moetuned.host.rehearsal_outside import error_outside
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("swapoff", "swapon")
_NOTHING = "/proc/self/moetuned-rehearsal-of-no-swap"
_CURE = (
    "install dbus, or in a drop-in of moetuned.service: CAP_SYS_ADMIN in CapabilityBoundingSet=, SystemCallFilter=@swap"
)
_OUTSIDE = (
    "import ctypes, sys; libc = ctypes.CDLL(None, use_errno=True); name = sys.argv[2].encode(); "
    "libc.swapon(name, 0) if sys.argv[1] == 'swapon' else libc.swapoff(name); print(ctypes.get_errno())"
)


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
        there = error_outside(_OUTSIDE, need.subject, _NOTHING)
        if there is None:
            return unknown(
                f"{need.subject}(2) is not permitted here, and outside of the unit nothing came of it in time"
            )
        number = there
    if number in (errno.ENOENT, errno.EINVAL):
        return YES
    if number == errno.EPERM:
        return no(f"{need.subject}(2) is not permitted", _CURE)
    return unknown(f"{need.subject}(2): {os.strerror(number)}")
