"""The kernel log can be read.

For: whom the OOM killer ended, when a backend is gone.

Tried: /dev/kmsg is opened for reading and closed.

No: no CAP_SYSLOG in `CapabilityBoundingSet=` (kernel.dmesg_restrict), `ProtectKernelLogs=yes`, or `PrivateDevices=yes`.

Unknown: there is no /dev/kmsg here.

Do: CAP_SYSLOG in `CapabilityBoundingSet=`, `ProtectKernelLogs=no` and `DeviceAllow=/dev/kmsg r`. Without it the cgroup's counter tells.
"""

from __future__ import annotations

import os

from moetuned.host.kernel_log import KERNEL_LOG
from moetuned.host.rehearsal_answers import YES, of_error
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ()


def needs(_facts: RehearsalFacts) -> tuple[Need, ...]:
    """Always."""
    return (Need(KERNEL_LOG, (Action.OBSERVE,)),)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    try:
        os.close(os.open(need.subject, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return of_error(error, need.subject, "CAP_SYSLOG in CapabilityBoundingSet=, ProtectKernelLogs=no")
    return YES
