"""How bad an event is: the one table that the log, the journal and every sink take their levels from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from moetuned.schema.event import EventName


class Severity(StrEnum):
    """Words of Prometheus' alerting rules; `info` is good news and what moetuned does on purpose."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


SEVERITY: Mapping[EventName, Severity] = {
    # Nobody gets an answer, or the kernel may end a process soon.
    EventName.BACKEND_DOWN: Severity.CRITICAL,
    EventName.BACKEND_OOM_KILLED: Severity.CRITICAL,
    EventName.BACKEND_HUNG: Severity.CRITICAL,
    EventName.BACKEND_MODEL_MISSING: Severity.CRITICAL,
    EventName.BACKEND_PORT_TAKEN: Severity.CRITICAL,
    EventName.BACKEND_CRASH_LOOP: Severity.CRITICAL,
    EventName.RELIEF_EXHAUSTED: Severity.CRITICAL,
    # It is slow, will be, or is not as it was asked for.
    EventName.THRASH_BEGIN: Severity.WARNING,
    EventName.MEMORY_NEAR_LIMIT: Severity.WARNING,
    EventName.BACKEND_NOT_RESTARTED: Severity.WARNING,
    EventName.BACKEND_START_CHANGED: Severity.WARNING,
    EventName.CACHE_EVICTED: Severity.WARNING,
    EventName.TUNING_DRIFTED: Severity.WARNING,
    EventName.DEVICE_UNSUITABLE: Severity.WARNING,
    EventName.THRASH_END: Severity.INFO,
    EventName.MEMORY_RECOVERED: Severity.INFO,
    EventName.BACKEND_RECOVERED: Severity.INFO,
    EventName.BACKEND_RESTARTING: Severity.INFO,
    EventName.BACKEND_RESTARTED: Severity.INFO,
    EventName.TEST: Severity.INFO,
}
"""The kinds of backend_down are as bad as it is: they are one alert where begin and end must be told with the same labels."""
