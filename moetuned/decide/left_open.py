"""What was told to have begun before moetuned was started anew, or a backend's entry was changed, and whose end was not seen: when that is over,
and what is said then.
"""

from __future__ import annotations

from collections.abc import Mapping

from moetuned.schema.event import EventName
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict

SURE_SECONDS = 90.0
"""It has been well for so long: longer than any rule needs to see that it is not, which for one that hangs is a minute."""

_END: Mapping[EventName, tuple[EventName, str]] = {
    EventName.THRASH_BEGIN: (EventName.THRASH_END, "it does not thrash"),
    EventName.MEMORY_NEAR_LIMIT: (EventName.MEMORY_RECOVERED, "memory is enough"),
    EventName.RELIEF_EXHAUSTED: (EventName.MEMORY_RECOVERED, "memory is enough"),
    EventName.BACKEND_DOWN: (EventName.BACKEND_RECOVERED, "it runs and answers"),
    EventName.BACKEND_RESTARTING: (EventName.BACKEND_RESTARTED, "it runs and answers"),
}


def is_well(begun: EventName, verdict: Verdict, *, ready: bool) -> bool:
    """Whether nothing is seen now of what began (a general name). What is unknown is not well. `ready`: it answers that it is."""
    if verdict.phase in (Phase.ABSENT, Phase.LOADING):
        return False
    match begun:
        case EventName.THRASH_BEGIN:
            return verdict.paging not in (Paging.UNKNOWN, Paging.THRASHING)
        case EventName.MEMORY_NEAR_LIMIT | EventName.RELIEF_EXHAUSTED:
            return verdict.memory is MemoryState.OK
        case _:
            return ready and not any(reason.signal == "hung" for reason in verdict.reasons)


def end_of(begun: EventName) -> tuple[EventName, str]:
    """The event that ends it, and its message. Raises KeyError for what has no end."""
    name, now = _END[begun]
    return (
        name,
        f"{now}; that this was not so was told before moetuned was started anew, or the entry of this backend changed",
    )
