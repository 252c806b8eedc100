"""Paging while nothing is asked of the model: has somebody else pushed it out of memory, and is it there again?"""

from __future__ import annotations

import msgspec

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.paging_axis import MAX_STEP_SECONDS, PagingAxis, PagingStep, become, held, reason
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendSample
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_duration, format_ratio
from moetuned.schema.verdict import Check, Paging


def step_idle(
    axis: PagingAxis, signals: Signals, sample: BackendSample, facts: BackendFacts, settings: DetectorSettings
) -> PagingStep:
    """Paging at a tick without a request."""
    dt = min(signals.dt_seconds or 0.0, MAX_STEP_SECONDS)
    mapped = None if sample.process is None else sample.process.rss_file_bytes
    scan = None if sample.residency is None else sample.residency.resident_bytes
    resident = axis.resident_bytes if scan is None else scan
    axis = msgspec.structs.replace(
        axis,
        idle_seconds=axis.idle_seconds + dt,
        idle_mapped_bytes=_largest(axis.idle_mapped_bytes, mapped),
        idle_resident_bytes=_largest(axis.idle_resident_bytes, resident),
        resident_bytes=resident,
        scan_mapped_bytes=axis.scan_mapped_bytes if scan is None else mapped,
    )
    check = _evicted(axis, mapped, facts, settings)
    lost, gone = check.value, bool(check.beyond)
    axis = msgspec.structs.replace(axis, evicted_seconds=axis.evicted_seconds + dt if gone else 0.0)
    if gone and not axis.evicted and axis.evicted_seconds >= settings.evicted_hold_seconds:
        text = (
            f"{format_ratio(lost)} of the model left the page cache while it was idle "
            f"(limit {format_ratio(settings.evicted_ratio)})"
        )
        message = f"{text}: the next request reads it again; warm it, or see what else used memory"
        why = reason("resident_ratio", lost, settings.evicted_ratio, axis.evicted_seconds, text)
        ended = (
            ((EventName.THRASH_END, "it thrashes no more: requests stopped"),)
            if axis.paging is Paging.THRASHING
            else ()
        )
        begun = (*ended, (EventName.CACHE_EVICTED, message))
        cold = become(axis, Paging.COLD, signals, evicted=True)
        if scan is None:  # whatever was scanned before is older than the loss
            cold = msgspec.structs.replace(cold, resident_bytes=None, scan_mapped_bytes=None)
        return PagingStep(cold, (why,), begun)
    if axis.evicted or (gone and axis.paging is not Paging.THRASHING):
        return _while_evicted(axis, signals, mapped, check, facts, settings)
    return _idle_rest(axis, signals, mapped, facts, settings)


def _while_evicted(
    axis: PagingAxis,
    signals: Signals,
    mapped: int | None,
    check: Check,
    facts: BackendFacts,
    settings: DetectorSettings,
) -> PagingStep:
    """It was pushed out, and is so until a scan made since finds it all in memory again."""
    full = _full(axis, signals, mapped, facts, settings)
    if axis.evicted and full.beyond and not check.beyond and axis.resident_bytes is not None:
        text = f"idle, {format_ratio(full.value)} of the model resident again"
        why = reason("resident_ratio", full.value, settings.steady_resident_ratio, axis.idle_seconds, text)
        # What leaves memory from now on is told anew.
        back = become(axis, Paging.STEADY, signals, evicted=False, evicted_seconds=0.0)
        return PagingStep(msgspec.structs.replace(back, idle_mapped_bytes=mapped), (why,))
    text = f"{format_ratio(check.value)} of the model left the page cache while it was idle"
    if not check.beyond:
        text = f"idle; the model was pushed out of memory, and {format_ratio(full.value)} of it is resident"
    why = reason("resident_ratio", check.value, settings.evicted_ratio, axis.evicted_seconds, text)
    return PagingStep(axis, (why,))


def _idle_rest(
    axis: PagingAxis, signals: Signals, mapped: int | None, facts: BackendFacts, settings: DetectorSettings
) -> PagingStep:
    if axis.paging is Paging.THRASHING:
        if axis.idle_seconds < settings.idle_release_seconds:
            text = f"idle for {format_duration(axis.idle_seconds)} (a thrash is over after {settings.idle_release_seconds:.0f} s)"
            return PagingStep(axis, (reason("busy_slots", 0.0, None, axis.idle_seconds, text),))
        message = "requests stopped, so nothing thrashes now; it may begin again with the next one"
        why = reason("busy_slots", 0.0, None, axis.idle_seconds, "idle; it was thrashing before")
        return PagingStep(become(axis, Paging.UNKNOWN, signals), (why,), ((EventName.THRASH_END, message),))
    check = _full(axis, signals, mapped, facts, settings)
    ratio = check.value
    if check.beyond:
        text = f"idle, {format_ratio(ratio)} of the model resident"
        why = reason("resident_ratio", ratio, settings.steady_resident_ratio, axis.idle_seconds, text)
        return PagingStep(become(axis, Paging.STEADY, signals), (why,))
    text = f"idle for {format_duration(axis.idle_seconds)}; as it was when it worked last"
    return PagingStep(axis, (reason("busy_slots", 0.0, None, axis.idle_seconds, text),))


def _evicted(axis: PagingAxis, mapped: int | None, facts: BackendFacts, settings: DetectorSettings) -> Check:
    """Whether somebody else pushed the model out while it was idle."""
    lost, limit = _lost_while_idle(axis, mapped, axis.resident_bytes, facts), settings.evicted_ratio
    return Check("left_memory_ratio", lost, limit, beyond=None if lost is None else lost >= limit, would="cold")


def _full(
    axis: PagingAxis, signals: Signals, mapped: int | None, facts: BackendFacts, settings: DetectorSettings
) -> Check:
    """Whether so much of the model is in memory that nothing of it is missed: as the last scan found it, without what went since."""
    ratio, limit = signals.get("resident_ratio"), settings.steady_resident_ratio
    then = axis.idle_mapped_bytes if axis.resident_bytes is None else axis.scan_mapped_bytes
    if ratio is not None and facts.model_bytes:
        ratio = max(0.0, ratio - _fell(then, mapped) / facts.model_bytes)
    return Check("resident_ratio", ratio, limit, beyond=None if ratio is None else ratio >= limit, would="steady")


def _lost_while_idle(axis: PagingAxis, mapped: int | None, resident: int | None, facts: BackendFacts) -> float | None:
    """Share of the model that went since it became idle.

    A scan goes before what the process has mapped, but only the newest is true, and what it found may have gone since: by what less
    is mapped now than when it was made.
    """
    size = facts.model_bytes
    if not size:
        return None
    unmapped = None if mapped is None or axis.idle_mapped_bytes is None else (axis.idle_mapped_bytes - mapped) / size
    if resident is None or axis.idle_resident_bytes is None:
        return unmapped
    now = max(0, resident - _fell(axis.scan_mapped_bytes, mapped))
    by_scan = (axis.idle_resident_bytes - now) / size
    if unmapped is None:
        return by_scan
    # What is resident is not lost, however little of it the process has mapped.
    return max(by_scan, min(unmapped, 1.0 - now / size))


def _fell(earlier: int | None, now: int | None) -> int:
    return 0 if earlier is None or now is None else max(0, earlier - now)


def _largest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def idle_checks(
    axis: PagingAxis, signals: Signals, sample: BackendSample, facts: BackendFacts, settings: DetectorSettings
) -> tuple[Check, ...]:
    """What the rules look at while it is idle, as it stands after this tick's step."""
    mapped = None if sample.process is None else sample.process.rss_file_bytes
    evicted = held(_evicted(axis, mapped, facts, settings), axis.evicted_seconds, settings.evicted_hold_seconds, "cold")
    if evicted.value is None:
        unknown = "neither its mapped memory nor a scan of its residency was seen twice while it is idle"
        evicted = msgspec.structs.replace(evicted, unknown=unknown)
    return (evicted, _full(axis, signals, mapped, facts, settings))
