"""Events for sinks to tell."""

from __future__ import annotations

import msgspec

from moetuned.schema.event import Event, EventName
from moetuned.schema.verdict import Reason

HOSTILE = "$(touch pwned)\r\nBcc: all@example.org\n\n<b>bold</b> & \"quoted\" 'too' %s \\x00 \0 \x1b[31m \u202e größer ✓ \ud800"
"""What a process may have said of itself."""


def event(name: EventName = EventName.THRASH_BEGIN, **changes: object) -> Event:
    """One about the backend glm, with a reason, on 15 January 2027 at 8:00 UTC."""
    told = Event(
        id="0006a0b1c2d3e4-000001",
        name=name,
        wall_seconds=1_800_000_000.25,
        at_seconds=10.0,
        backend="glm",
        message="glm thrashes: close firefox",
        reasons=(Reason("paging", "refault_ratio", 0.9, 0.5, 8.0, "refaults 90 %"),),
    )
    return msgspec.structs.replace(told, **changes)


def hostile(name: EventName = EventName.THRASH_BEGIN) -> Event:
    """One in which every text is hostile."""
    return event(
        name, id=HOSTILE, backend=HOSTILE, message=HOSTILE, reasons=(Reason("paging", "s", None, None, None, HOSTILE),)
    )
