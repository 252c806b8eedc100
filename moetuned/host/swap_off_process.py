"""A small process that swaps one swap off: swapoff(2) may take minutes, and must not be the daemon's own call.

When memory runs out meanwhile, the kernel kills whoever calls swapoff before anybody else, whatever its OOM score
(set_current_oom_origin in mm/swapfile.c). Killed, the swap stays on. It ends with its parent (PR_SET_PDEATHSIG). It prints the
error's number, 0 for none. Nothing of ours is imported: it stays small.

While it is at it, it holds a lock on the swap. Killed, it may be in the kernel for seconds more before it notices, and may even swap off
all of it: only once the lock is free is it known how that ended (`swap_devices.wait_for_swap_off`).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Arguments: the parent's pid, the path."""
    parent, path = int(sys.argv[-2]), sys.argv[-1]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        return 1
    with contextlib.suppress(OSError):  # until the process is gone
        fcntl.flock(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), fcntl.LOCK_SH)
    result = libc.swapoff(os.fsencode(path))
    print(0 if result == 0 else ctypes.get_errno(), flush=True)  # noqa: T201
    return 0
