"""What was told to have begun before moetuned was started anew, a backend's entry was changed, or its process that hung ended, and whose end was not seen: when that is over,
and what is said then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def came_to_nothing(begun: EventName, verdict: Verdict, *, restarting: bool) -> bool:
    """Whether it is a restart after which nothing runs. `restarting`: one goes on, or what became of it is not known yet."""
    return begun is EventName.BACKEND_RESTARTING and verdict.phase is Phase.ABSENT and not restarting


NOTHING = (
    EventName.BACKEND_NOT_RESTARTED,
    "it does not run; that it is restarted was told before moetuned was started anew, or the entry of this backend changed",
)
"""What is said then, which is no end of its own."""


_RETIRED = "it is watched no more, because its entry was taken out of the configuration; what became of it is not known"


def retired(begun: Iterable[EventName]) -> dict[EventName, str]:
    """What ends these (general names) of a backend that its owner has taken out of the configuration, and the message: nobody else would."""
    ends = (NOTHING[0] if each is EventName.BACKEND_RESTARTING else _END[each][0] for each in begun if each in _END)
    return dict.fromkeys(ends, _RETIRED)


def end_of(begun: EventName) -> tuple[EventName, str]:
    """The event that ends it, and its message. Raises KeyError for what has no end."""
    name, now = _END[begun]
    return (
        name,
        f"{now}; that this was not so was told before moetuned was started anew, the entry of this backend changed, or its process that hung ended",
    )
