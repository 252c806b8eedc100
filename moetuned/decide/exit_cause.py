"""Why a backend ended or cannot be started, told from evidence only; what there is no evidence for stays unknown.

Evidence of the kernel's OOM killer is its line in the kernel log that names the process, or the counter of the process's own memory
cgroup: it counts the processes of that cgroup that any OOM killer ended, the machine's too (Documentation/admin-guide/cgroup-v2.rst,
memory.events), and is raised before the signal is sent (mm/oom_kill.c).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moetuned.schema.event import EventName
from moetuned.schema.oom_kill import OomKill

SIGKILL = 9
OOM_KILLED = "was ended by the kernel's OOM killer"
"""The end of the sentence "NAME …"."""


class Cause(StrEnum):
    """Why. Each has its event and its way of being started again."""

    EXIT = "exit"
    OOM_KILLED = "oom_killed"
    HUNG = "hung"
    MODEL_MISSING = "model_missing"
    PORT_TAKEN = "port_taken"


EVENT_OF = {
    Cause.EXIT: EventName.BACKEND_DOWN,
    Cause.OOM_KILLED: EventName.BACKEND_OOM_KILLED,
    Cause.HUNG: EventName.BACKEND_HUNG,
    Cause.MODEL_MISSING: EventName.BACKEND_MODEL_MISSING,
    Cause.PORT_TAKEN: EventName.BACKEND_PORT_TAKEN,
}
WAITS_FOR = {
    Cause.MODEL_MISSING: "once it can be read",
    Cause.PORT_TAKEN: "once that port is free",
}
"""What lets no backend start, so that none is started before it is gone; the end of the sentence "it is started …"."""


class Obstacle(msgspec.Struct, frozen=True):
    """What lets no backend start now. `cause` is one of `WAITS_FOR`; `text` a sentence about it without its end."""

    cause: Cause
    text: str


class Evidence(msgspec.Struct, frozen=True):
    """What was found when a process had ended. None: it could not be looked at.

    `how`: the end of the sentence "NAME …"; `signal`: the one that ended it, 0: none. `counted`: kills of any OOM killer in its own
    memory cgroup just before; `logged`: those that the kernel log has since the process began; `obstacle`: what would
    let it not start again.
    """

    pid: int
    how: str
    signal: int | None = None
    counted: int | None = None
    logged: tuple[OomKill, ...] | None = None
    obstacle: Obstacle | None = None


class Ending(msgspec.Struct, frozen=True):
    """Why it ended; `how`: the end of the sentence "NAME …"."""

    cause: Cause
    how: str


def ending(found: Evidence) -> Ending:
    """The cause that the evidence is enough for."""
    if found.signal is None or found.signal == SIGKILL:
        killed = _oom_killed(found)
        if killed is not None:
            return killed
    if found.signal == SIGKILL:
        return Ending(Cause.EXIT, f"{found.how}: {_not_by_the_kernel(found)}")
    if not found.signal and found.obstacle is not None:
        return Ending(found.obstacle.cause, f"{found.how}: {found.obstacle.text}")
    return Ending(Cause.EXIT, found.how)


def _oom_killed(found: Evidence) -> Ending | None:
    own = next((kill for kill in reversed(found.logged or ()) if kill.pid == found.pid), None)
    if own is not None:
        return Ending(Cause.OOM_KILLED, f"{OOM_KILLED}: {_why(own)}")
    # A counter alone may count a neighbour in the same cgroup; the log, where it can be read, names each.
    if found.counted and found.logged is None:
        return Ending(Cause.OOM_KILLED, f"{OOM_KILLED}: it acted in its memory cgroup at that moment")
    return None


def _why(kill: OomKill) -> str:
    if kill.limit_of is None:
        return "the kernel log names it"
    return "the machine had no memory left" if kill.limit_of == "" else f"the cgroup {kill.limit_of} was at its limit"


def _not_by_the_kernel(found: Evidence) -> str:
    if found.logged is not None:
        return "not by the kernel's OOM killer, whose log does not name it, so somebody or something sent it"
    if found.counted == 0:
        return "its memory cgroup counts no kill of the kernel's OOM killer, so somebody or something sent it"
    return "whether by the kernel's OOM killer is not known: neither the kernel log nor a counter of its memory cgroup can be read"
