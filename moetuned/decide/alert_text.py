"""What sinks say of an event: a title of a few words, and texts that are clean and bounded, whatever is in the event.

A backend's name comes from the config, but a message may quote a process's own words: in a sink all of it is data.
"""

from __future__ import annotations

from collections.abc import Mapping

from moetuned.schema.event import Event, EventName

TITLE_BYTES = 200
MESSAGE_BYTES = 2000
REASONS_BYTES = 1500

TITLES: Mapping[EventName, str] = {
    EventName.THRASH_BEGIN: "thrashing",
    EventName.THRASH_END: "no longer thrashing",
    EventName.MEMORY_NEAR_LIMIT: "memory near its limit",
    EventName.MEMORY_RECOVERED: "memory is well again",
    EventName.BACKEND_DOWN: "down",
    EventName.BACKEND_OOM_KILLED: "ended by the OOM killer",
    EventName.BACKEND_HUNG: "hangs",
    EventName.BACKEND_MODEL_MISSING: "down, its model is missing",
    EventName.BACKEND_PORT_TAKEN: "down, its port is taken",
    EventName.BACKEND_CRASH_LOOP: "down, it ends again and again",
    EventName.BACKEND_RECOVERED: "up again",
    EventName.BACKEND_RESTARTING: "is being restarted",
    EventName.BACKEND_RESTARTED: "was restarted",
    EventName.BACKEND_NOT_RESTARTED: "not restarted",
    EventName.BACKEND_START_CHANGED: "started with less than asked for",
    EventName.RELIEF_EXHAUSTED: "nothing left that would free memory",
    EventName.CACHE_EVICTED: "its model was pushed out of memory",
    EventName.TUNING_DRIFTED: "a setting was changed",
    EventName.DEVICE_UNSUITABLE: "its disk is not fit for it",
    EventName.TEST: "a test of the alerts",
}


def title(event: Event) -> str:
    """A few words in one line: "glm: thrashing"; of the machine, "a setting was changed"."""
    words = TITLES[event.name]
    return one_line(words if event.backend is None else f"{event.backend}: {words}", TITLE_BYTES)


def message(event: Event) -> str:
    """The event's sentence in one line."""
    return one_line(event.message, MESSAGE_BYTES)


def reasons(event: Event) -> str:
    """Why, one reason a line; empty when there is none."""
    lines = (one_line(reason.text, REASONS_BYTES) for reason in event.reasons)
    return cut("\n".join(line for line in lines if line), REASONS_BYTES)


def one_line(text: str, limit_bytes: int) -> str:
    """The text with every control character, line break, lone surrogate and run of blanks as one blank; cut where it is too long."""
    # What is looked at is bounded too: blanks that are joined may be many.
    printable = "".join(char if char.isprintable() else " " for char in text[: limit_bytes * 4])
    return cut(" ".join(printable.split()), limit_bytes)


def cut(text: str, limit_bytes: int) -> str:
    """The text, or as much of its beginning as fits in so many bytes of UTF-8 with "…" at its end."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit_bytes:
        return data.decode("utf-8")
    return data[: limit_bytes - 3].decode("utf-8", "ignore") + "…"
