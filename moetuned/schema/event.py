"""Events: what began or ended; an alert is an event that a sink subscribes to."""

from __future__ import annotations

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
    BACKEND_RECOVERED = "backend_recovered"
    BACKEND_RESTARTING = "backend_restarting"
    BACKEND_RESTARTED = "backend_restarted"
    RELIEF_EXHAUSTED = "relief_exhausted"
    CACHE_EVICTED = "cache_evicted"
    TUNING_DRIFTED = "tuning_drifted"
    DEVICE_UNSUITABLE = "device_unsuitable"


class Event(msgspec.Struct, frozen=True):
    """One event. `message` is one sentence a person can act on; `backend` None: about the machine."""

    id: str
    name: EventName
    wall_seconds: float
    at_seconds: float
    backend: str | None
    message: str
    reasons: tuple[Reason, ...] = ()
