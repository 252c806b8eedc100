"""The kernel log can be read.

For: whom the OOM killer ended, when a backend is gone.

Tried: /dev/kmsg is opened for reading and closed; what the unit may not do is tried outside of it, where the log is read, too.

No: where systemd cannot read it outside, no CAP_SYSLOG in `CapabilityBoundingSet=` (kernel.dmesg_restrict), `ProtectKernelLogs=yes`, or `PrivateDevices=yes`.

Unknown: there is no /dev/kmsg here.

Do: CAP_SYSLOG in `CapabilityBoundingSet=`, `ProtectKernelLogs=no` and `DeviceAllow=/dev/kmsg r`. Without it the cgroup's counter tells.
"""

from __future__ import annotations

import errno
import os

from moetuned.host.kernel_log import KERNEL_LOG
from moetuned.host.outside_sandbox import can_leave
from moetuned.host.rehearsal_answers import REFUSALS, YES, of_error, unknown
from moetuned.host.rehearsal_outside import error_outside
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ()
_OUTSIDE = "import os, sys; os.close(os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)); print(0)"
"""What fails prints nothing and is not known."""


def needs(_facts: RehearsalFacts) -> tuple[Need, ...]:
    """Always."""
    return (Need(KERNEL_LOG, (Action.OBSERVE,)),)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    try:
        os.close(os.open(need.subject, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        # ENXIO: what systemd puts in the place of a device that it hides, for one with CAP_DAC_OVERRIDE (ProtectKernelLogs=).
        if (error.errno in REFUSALS or error.errno == errno.ENXIO) and can_leave():
            there = error_outside(_OUTSIDE, need.subject)
            return (
                YES
                if there == 0
                else unknown(f"{need.subject} may not be read here, and outside of the unit nothing came of it in time")
            )
        return of_error(error, need.subject, "CAP_SYSLOG in CapabilityBoundingSet=, ProtectKernelLogs=no")
    return YES
