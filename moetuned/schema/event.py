"""Events: what began or ended; an alert is an event that a sink subscribes to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from moetuned.schema.unicode_text import unicode_text
from moetuned.schema.verdict import Reason


class EventName(StrEnum):
    """Every event there is."""

    THRASH_BEGIN = "thrash_begin"
    THRASH_END = "thrash_end"
    MEMORY_NEAR_LIMIT = "memory_near_limit"
    MEMORY_RECOVERED = "memory_recovered"
    BACKEND_DOWN = "backend_down"
    BACKEND_OOM_KILLED = "backend_oom_killed"
    BACKEND_HUNG = "backend_hung"
    BACKEND_MODEL_MISSING = "backend_model_missing"
    BACKEND_PORT_TAKEN = "backend_port_taken"
    BACKEND_CRASH_LOOP = "backend_crash_loop"
    BACKEND_RECOVERED = "backend_recovered"
    BACKEND_RESTARTING = "backend_restarting"
    BACKEND_RESTARTED = "backend_restarted"
    BACKEND_NOT_RESTARTED = "backend_not_restarted"
    BACKEND_START_CHANGED = "backend_start_changed"
    RELIEF_EXHAUSTED = "relief_exhausted"
    CACHE_EVICTED = "cache_evicted"
    TUNING_DRIFTED = "tuning_drifted"
    DEVICE_UNSUITABLE = "device_unsuitable"
    TEST = "test"
    """Somebody tries the sinks: nothing is wrong. It goes to sinks whatever they subscribe to, and is kept nowhere."""


KIND_OF: Mapping[EventName, EventName] = {
    EventName.BACKEND_OOM_KILLED: EventName.BACKEND_DOWN,
    EventName.BACKEND_HUNG: EventName.BACKEND_DOWN,
    EventName.BACKEND_MODEL_MISSING: EventName.BACKEND_DOWN,
    EventName.BACKEND_PORT_TAKEN: EventName.BACKEND_DOWN,
    EventName.BACKEND_CRASH_LOOP: EventName.BACKEND_DOWN,
}
"""Events that are a kind of another one: whoever wants that one gets them too."""


ENDS: Mapping[EventName, tuple[EventName, ...]] = {
    EventName.THRASH_END: (EventName.THRASH_BEGIN,),
    EventName.MEMORY_RECOVERED: (EventName.MEMORY_NEAR_LIMIT, EventName.RELIEF_EXHAUSTED),
    EventName.BACKEND_RECOVERED: (EventName.BACKEND_DOWN,),
    EventName.BACKEND_RESTARTED: (EventName.BACKEND_RESTARTING,),
}
"""What each event that is an end is the end of; for the same backend. What begins and is in no end is over when it is told."""


CLOSES: Mapping[EventName, tuple[EventName, ...]] = {
    EventName.BACKEND_NOT_RESTARTED: (EventName.BACKEND_RESTARTING,),
    EventName.BACKEND_DOWN: (EventName.BACKEND_RESTARTING,),
    EventName.RELIEF_EXHAUSTED: (EventName.BACKEND_RESTARTING,),
}
"""What is over with an event that is no end, where it tells how that came out; its kinds do the same. It does where `Event.ended` names it."""


def general(name: EventName) -> EventName:
    """The event that it is a kind of; itself where it is of none."""
    return KIND_OF.get(name, name)


def begun_by(name: EventName) -> tuple[EventName, ...]:
    """What an event tells of, begun or over: of an end, what it is the end of; of any other, that event without its kind."""
    return ENDS.get(name, (general(name),))


def has_end(name: EventName) -> bool:
    """Whether an event begins what another one ends."""
    return any(general(name) in begun for begun in ENDS.values())


def may_close(name: EventName) -> tuple[EventName, ...]:
    """What may be over with an event that is no end."""
    return CLOSES.get(general(name), ())


def is_kind_of(name: EventName, general: EventName) -> bool:
    """Whether `name` is that event or a kind of it."""
    return name is general or KIND_OF.get(name) is general


def is_wanted(name: EventName, subscribed: Collection[EventName]) -> bool:
    """Whether a sink that subscribes to these gets `name`; one that names none gets all."""
    return not subscribed or any(is_kind_of(name, each) for each in subscribed)


class Event(msgspec.Struct, frozen=True):
    """One event. `message` is one sentence a person can act on; `backend` None: about the machine. `ended`: ids of the events that are
    over with this one, as far as they are known.
    """

    id: str
    name: EventName
    wall_seconds: float
    at_seconds: float
    backend: str | None
    message: str
    reasons: tuple[Reason, ...] = ()
    ended: tuple[str, ...] = ()

    @property
    def closes(self) -> tuple[EventName, ...]:
        """What is over with it although it is no end: a restart that it tells the failure of."""
        return may_close(self.name) if self.ended else ()

    def __post_init__(self) -> None:
        """Clears its texts, made of names of files and processes, of lone surrogates: what is made of an event can be written as UTF-8."""
        for name in ("backend", "message"):
            text = getattr(self, name)
            if text is not None and (clear := unicode_text(text)) is not text:
                msgspec.structs.force_setattr(self, name, clear)
        if not all(reason.text.isascii() for reason in self.reasons):
            reasons = tuple(msgspec.structs.replace(each, text=unicode_text(each.text)) for each in self.reasons)
            msgspec.structs.force_setattr(self, "reasons", reasons)


class KeptEvents(msgspec.Struct, frozen=True):
    """Events, oldest first. `complete`: none that was asked for is missing; `file`: where the older ones are, which only root may read."""

    events: tuple[Event, ...] = ()
    complete: bool = True
    file: str | None = None
