"""Events: what began or ended; an alert is an event that a sink subscribes to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

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


KIND_OF: Mapping[EventName, EventName] = {
    EventName.BACKEND_OOM_KILLED: EventName.BACKEND_DOWN,
    EventName.BACKEND_HUNG: EventName.BACKEND_DOWN,
    EventName.BACKEND_MODEL_MISSING: EventName.BACKEND_DOWN,
    EventName.BACKEND_PORT_TAKEN: EventName.BACKEND_DOWN,
    EventName.BACKEND_CRASH_LOOP: EventName.BACKEND_DOWN,
}
"""Events that are a kind of another one: whoever wants that one gets them too."""


def is_kind_of(name: EventName, general: EventName) -> bool:
    """Whether `name` is that event or a kind of it."""
    return name is general or KIND_OF.get(name) is general


def is_wanted(name: EventName, subscribed: Collection[EventName]) -> bool:
    """Whether a sink that subscribes to these gets `name`; one that names none gets all."""
    return not subscribed or any(is_kind_of(name, each) for each in subscribed)


class Event(msgspec.Struct, frozen=True):
    """One event. `message` is one sentence a person can act on; `backend` None: about the machine."""

    id: str
    name: EventName
    wall_seconds: float
    at_seconds: float
    backend: str | None
    message: str
    reasons: tuple[Reason, ...] = ()
