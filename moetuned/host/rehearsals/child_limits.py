"""The limits that the config gives a backend can be set (prlimit(1)).

For: starts and restarts of backends with `supervise.limits`.

Tried: each limit is set for a process of the rehearsal's own, which ends.

No: a hard limit would have to be raised, which takes CAP_SYS_RESOURCE; or there is no program prlimit.

Unknown: the kernel does not take the value for another reason.

Do: CAP_SYS_RESOURCE in `CapabilityBoundingSet=`, or `LimitMEMLOCK=` and the like, in a drop-in of moetuned.service.
"""

from __future__ import annotations

import resource

from moetuned.host.program_search import find_program
from moetuned.host.rehearsal_answers import YES, no, unknown
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts
from moetuned.schema.units import parse_bytes

CALLS = ("prlimit",)
_LIMITS = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "open_files": resource.RLIMIT_NOFILE,
    "core": resource.RLIMIT_CORE,
}
_OPTIONS = {"memlock": "LimitMEMLOCK", "open_files": "LimitNOFILE", "core": "LimitCORE"}


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Each limit of each backend."""
    actions = (Action.START, Action.RESTART)
    return tuple(
        Need(f"limits.{name}", actions, one.name)
        for one in facts.backends
        for name in _LIMITS
        if getattr(one.limits, name) is not None
    )


def rehearse(need: Need, facts: RehearsalFacts) -> Found:
    """See above."""
    if find_program("prlimit") is None:
        return no("there is no program prlimit", "install util-linux")
    name = need.subject.removeprefix("limits.")
    wanted = next(getattr(one.limits, name) for one in facts.backends if one.name == need.backend)
    number = resource.RLIM_INFINITY if wanted == "unlimited" else parse_bytes(wanted)
    try:
        resource.prlimit(0, _LIMITS[name], (number, number))
    except (ValueError, PermissionError):
        return no(
            f"supervise.limits.{name} is above the limit of the service, which may not raise it",
            f"in a drop-in of moetuned.service: {_OPTIONS[name]}={wanted}, or CAP_SYS_RESOURCE in CapabilityBoundingSet=",
        )
    except OSError as error:
        return unknown(str(error))
    return YES
