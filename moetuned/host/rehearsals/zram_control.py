"""zram devices can be made: the kernel's control file is writable, or its module may be loaded.

For: swap in compressed memory.

Tried: the control file that removes a device is opened for writing, and nothing is written (the one that makes one does so when it is read). Where the module is not loaded, finit_module(2) for no file: the kernel checks the right first (EPERM). What the unit may not do is tried as the action does it, outside of the unit.

No: /sys is read-only (`ProtectKernelTunables=yes`), or modules may not be loaded (kernel.modules_disabled, a container; `ProtectKernelModules=yes` or no CAP_SYS_MODULE where systemd cannot run modprobe outside).

Unknown: the kernel has no such call.

Do: `ProtectKernelTunables=no` and `ProtectKernelModules=no` in a drop-in of moetuned.service, or have zram loaded at boot (modules-load.d).
"""

from __future__ import annotations

import ctypes
import errno
import os

from moetuned.host.outside_sandbox import can_leave
from moetuned.host.rehearsal_answers import YES, cure_of_sandbox, no, of_error, open_for_writing, unknown
from moetuned.host.rehearsal_outside import error_outside
from moetuned.host.zram_devices import zram_loaded
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("finit_module",)
_CONTROL = "/sys/class/zram-control/hot_remove"
_MACHINES = {"x86_64": 313, "aarch64": 273, "riscv64": 273, "ppc64le": 353, "s390x": 344}
_OPTIONS = "ProtectKernelTunables=no and ProtectKernelModules=no"
_CURE = f"in a drop-in of moetuned.service: {_OPTIONS}; or load zram at boot (modules-load.d)"
_OUTSIDE = (
    "import ctypes, sys; libc = ctypes.CDLL(None, use_errno=True); "
    "libc.syscall(ctypes.c_long(int(sys.argv[1])), ctypes.c_int(-1), b'', ctypes.c_int(0)); print(ctypes.get_errno())"
)


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Where zram is wished for."""
    return (Need("zram", (Action.ZRAM,)),) if facts.zram else ()


def rehearse(_need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    if zram_loaded():
        try:
            open_for_writing(_CONTROL)
        except OSError as error:
            return of_error(error, _CONTROL, cure_of_sandbox(error, _OPTIONS))
        return YES
    number = _MACHINES.get(os.uname().machine)
    if number is None:
        return unknown("which call loads modules is not known on this machine")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.syscall(ctypes.c_long(number), ctypes.c_int(-1), b"", ctypes.c_int(0))
    failed = ctypes.get_errno()
    if failed == errno.EPERM and can_leave():
        there = error_outside(_OUTSIDE, str(number))
        if there is None:
            return unknown("modules may not be loaded here, and outside of the unit nothing came of it in time")
        failed = there
    if failed == errno.EBADF:
        return YES
    return no("the module zram may not be loaded", _CURE) if failed == errno.EPERM else unknown(os.strerror(failed))
