"""The kernel wakes the daemon when tasks stall for memory (a PSI trigger).

For: to see a squeeze before the next tick; without it the daemon looks at every tick.

Tried: a trigger is set on /proc/pressure/memory and taken back.

No: /proc/pressure is read-only (`ProtectKernelTunables=yes`), or no CAP_SYS_RESOURCE before Linux 6.5.

Unknown: the kernel has no PSI (psi=1 on its command line), or does not take the trigger.

Do: CAP_SYS_RESOURCE in `CapabilityBoundingSet=`, `ProtectKernelTunables=no`.
"""

from __future__ import annotations

from moetuned.host.pressure_trigger import MACHINE_FILE, PressureTrigger
from moetuned.host.rehearsal_answers import YES, of_error
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ("epoll",)


def needs(_facts: RehearsalFacts) -> tuple[Need, ...]:
    """Always."""
    return (Need(MACHINE_FILE, (Action.OBSERVE,)),)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    try:
        PressureTrigger(need.subject).close()
    except OSError as error:
        return of_error(
            OSError(error.errno, str(error.strerror)), "a trigger", "CAP_SYS_RESOURCE in CapabilityBoundingSet="
        )
    return YES
