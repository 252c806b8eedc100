"""The memory axis: how near what cannot be reclaimed is to its limit, by level and by trend."""

from __future__ import annotations

import msgspec

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.growth_kind import GrowthKind, GrowthState, is_loading, step_growth
from moetuned.decide.limit_lowered import lowered_text
from moetuned.decide.memory_headroom import cgroup_limit_text
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendSample
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_bytes, format_duration, format_rate, format_ratio
from moetuned.schema.verdict import Check, MemoryState, Phase, Reason

TREND_SECONDS = 5.0
"""Loading allocates fast and then stops: no trend is believed before the window it is taken from (the signal
`seconds_to_limit`) holds nothing of it.
"""
RISING_RATIO = 0.01
"""Headroom that grew by more than this share of the limit since the last tick is recovering: nothing begins then."""


class MemoryAxis(msgspec.Struct, frozen=True):
    """What is remembered. `memory` is the last that was known; `known` False: it is unknown now.

    So an alarm that is open stays so while headroom cannot be read, and is neither given twice nor lost.
    """

    memory: MemoryState = MemoryState.UNKNOWN
    known: bool = False
    since: float | None = None
    near_seconds: float = 0.0
    critical_seconds: float = 0.0
    clear_seconds: float = 0.0
    headroom_bytes: float | None = None
    settled_seconds: float = 0.0
    """How long it has not been loading; a trend needs a whole window after that."""
    growth: GrowthState = GrowthState()
    """What is known of what grows."""


def shown(axis: MemoryAxis) -> MemoryState:
    """The state to show: unknown while headroom cannot be read."""
    return axis.memory if axis.known else MemoryState.UNKNOWN


class MemoryStep(msgspec.Struct, frozen=True):
    """The next state, why, and what began."""

    axis: MemoryAxis
    reasons: tuple[Reason, ...]
    begun: tuple[tuple[EventName, str], ...] = ()


class _Limits(msgspec.Struct, frozen=True):
    headroom: float
    total: float
    near: float
    critical: float


def step_memory(
    axis: MemoryAxis,
    signals: Signals,
    phase: Phase,
    settings: DetectorSettings,
    sample: BackendSample | None = None,
    facts: BackendFacts | None = None,
) -> MemoryStep:
    """Memory at this tick. Unknown headroom is unknown and begins nothing.

    Without `sample` and `facts` it is not said what grows and whose limit it is.
    """
    if sample is not None and facts is not None:
        axis = msgspec.structs.replace(axis, growth=step_growth(axis.growth, signals, sample, phase, facts))
    limits = _limits(signals, settings)
    if limits is None:
        reason = _reason("headroom_bytes", None, None, None, "headroom is unknown")
        since = axis.since if not axis.known and axis.since is not None else signals.at_seconds
        unknown = MemoryAxis(memory=axis.memory, since=since, settled_seconds=axis.settled_seconds, growth=axis.growth)
        return MemoryStep(unknown, (reason,))
    whose = None if sample is None else cgroup_limit_text(sample, limits.total, limits.headroom)
    dt = min(signals.dt_seconds or 0.0, 5.0)
    recovering = axis.headroom_bytes is not None and limits.headroom > axis.headroom_bytes + RISING_RATIO * limits.total
    loading = phase in (Phase.LOADING, Phase.ABSENT) or is_loading(axis.growth.growth)
    settled = 0.0 if loading else axis.settled_seconds + dt
    by_trend = bool(_trend(signals, limits, settings, settled, phase, axis.memory).beyond)
    critical_now = bool(_critical(signals, limits).beyond)
    near_now = bool(_near(limits).beyond) or by_trend
    clear_now = not by_trend and limits.headroom >= limits.near * settings.memory_release_factor
    near = axis.near_seconds + dt if near_now else 0.0
    critical = axis.critical_seconds + dt if critical_now else 0.0
    clear = axis.clear_seconds + dt if clear_now else 0.0
    memory = _next(axis.memory, near, critical, clear, settings, recovering=recovering, near_now=near_now)
    stepped = MemoryAxis(
        memory=memory,
        known=True,
        since=_since(axis, memory, signals),
        near_seconds=near,
        critical_seconds=critical,
        clear_seconds=clear,
        headroom_bytes=limits.headroom,
        settled_seconds=settled,
        growth=axis.growth,
    )
    reasons = _reasons(signals, limits, stepped, settings, by_trend=by_trend, whose=whose)
    begun = _begun(axis.memory, memory, reasons, stepped.growth, whose) or _recovered(axis.memory, memory, limits)
    return MemoryStep(stepped, reasons, begun)


def _limits(signals: Signals, settings: DetectorSettings) -> _Limits | None:
    headroom, ratio = signals.get("headroom_bytes"), signals.get("headroom_ratio")
    if headroom is None or ratio is None:
        return None
    total = headroom / ratio if ratio else 0.0
    near, critical = settings.near_headroom_bytes, settings.critical_headroom_bytes
    return _Limits(
        headroom=headroom,
        total=total,
        near=settings.near_headroom_ratio * total if near is None else near,
        critical=settings.critical_headroom_ratio * total if critical is None else critical,
    )


def memory_checks(
    axis: MemoryAxis, signals: Signals, settings: DetectorSettings, phase: Phase = Phase.UNKNOWN
) -> tuple[Check, ...]:
    """What the rules of this axis look at, as it stands after this tick's step. A tick itself needs no hold times of them."""
    limits = _limits(signals, settings)
    if limits is None:
        return (Check("headroom_bytes", axis="memory", above=False, would="near_limit"),)
    trend = _trend(signals, limits, settings, axis.settled_seconds, phase, axis.memory)
    held = (
        (_near(limits), axis.near_seconds, "near_limit"),
        (trend, axis.near_seconds, "near_limit"),
        (_critical(signals, limits), axis.critical_seconds, "critical"),
    )
    checks = [
        msgspec.structs.replace(
            check,
            would=would,
            held_seconds=seconds if check.beyond else 0.0,
            needed_seconds=settings.memory_hold_seconds,
        )
        for check, seconds, would in held
    ]
    if axis.memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
        checks.append(_clear(axis, limits, settings, trend))
    return tuple(checks)


def _near(limits: _Limits) -> Check:
    return Check(
        "headroom_bytes", limits.headroom, limits.near, axis="memory", above=False, beyond=limits.headroom < limits.near
    )


def _critical(signals: Signals, limits: _Limits) -> Check:
    """Too little headroom, unless the kernel has room before it ends a process."""
    room = signals.get("oom_room_bytes")
    low = limits.headroom < limits.critical
    spared = low and room is not None and room >= limits.critical
    aside = f"{format_bytes(room)} can still be freed before the kernel ends a process" if spared else None
    beyond = low and not spared
    return Check(
        "headroom_bytes", limits.headroom, limits.critical, axis="memory", above=False, beyond=beyond, aside=aside
    )


def _trend(
    signals: Signals, limits: _Limits, settings: DetectorSettings, settled: float, phase: Phase, memory: MemoryState
) -> Check:
    """Growth alone: it reaches the limit soon, and either not much is left or it is very soon.

    Nothing of loading is in it, but while it loads what it copies (`memory_forecast` tells no other growth then). A growth that was
    near its limit once is near it until it has slowed down by much.
    """
    low = memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL)
    seconds, limit = (
        signals.get("seconds_to_limit"),
        settings.near_seconds * (settings.trend_release_factor if low else 1.0),
    )
    if seconds is None:
        return Check("seconds_to_limit", None, limit, axis="memory", above=False)
    much = limits.headroom > settings.trend_headroom_ratio * limits.total
    roomy = much and seconds > settings.surely_near_seconds and not low
    settling = settled <= TREND_SECONDS and phase is not Phase.LOADING
    aside = None
    if seconds <= limit and (roomy or settling):
        aside = (
            "it has only just loaded, so growth is no trend yet"
            if settling
            else f"more than {format_ratio(settings.trend_headroom_ratio)} of the limit is left"
        )
    beyond = seconds <= limit and aside is None
    return Check("seconds_to_limit", seconds, limit, axis="memory", above=False, beyond=beyond, aside=aside)


def _clear(axis: MemoryAxis, limits: _Limits, settings: DetectorSettings, trend: Check) -> Check:
    enough = limits.near * settings.memory_release_factor
    return Check(
        "headroom_bytes",
        limits.headroom,
        enough,
        axis="memory",
        beyond=limits.headroom >= enough and not trend.beyond,
        held_seconds=axis.clear_seconds,
        needed_seconds=settings.memory_release_seconds,
        would="ok",
    )


def _next(
    memory: MemoryState,
    near: float,
    critical: float,
    clear: float,
    settings: DetectorSettings,
    *,
    recovering: bool,
    near_now: bool,
) -> MemoryState:
    if critical >= settings.memory_hold_seconds and not recovering:
        return MemoryState.CRITICAL
    if memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
        if clear >= settings.memory_release_seconds:
            return MemoryState.OK
        return memory if memory is MemoryState.NEAR_LIMIT or critical > 0 else MemoryState.NEAR_LIMIT
    if near >= settings.memory_hold_seconds and not recovering:
        return MemoryState.NEAR_LIMIT
    return memory if near_now and memory is MemoryState.UNKNOWN else MemoryState.OK


def _since(axis: MemoryAxis, memory: MemoryState, signals: Signals) -> float:
    return axis.since if axis.known and memory is axis.memory and axis.since is not None else signals.at_seconds


def _reasons(
    signals: Signals,
    limits: _Limits,
    axis: MemoryAxis,
    settings: DetectorSettings,
    *,
    by_trend: bool,
    whose: str | None,
) -> tuple[Reason, ...]:
    share = limits.headroom / limits.total if limits.total else 0.0
    text = (
        f"headroom {format_bytes(limits.headroom)} of {format_bytes(limits.total)} ({format_ratio(share)}; "
        f"near its limit below {format_bytes(limits.near)}, critical below {format_bytes(limits.critical)})"
    )
    if whose is not None:
        text += f"; {whose}"
    held = axis.near_seconds or None
    reasons = [_reason("headroom_bytes", limits.headroom, limits.near, held, text)]
    seconds = signals.get("seconds_to_limit")
    if by_trend and seconds is not None:
        trend = (
            f"memory that cannot be reclaimed grows {format_rate(signals.get('growth_to_limit_bytes_per_second'))}: "
            f"at its limit in {format_duration(seconds)} (limit {format_duration(settings.near_seconds)})"
        )
        reasons.insert(0, _reason("seconds_to_limit", seconds, settings.near_seconds, held, trend))
    grows = axis.growth.growth
    if grows.kind is not GrowthKind.NONE:
        speed = signals.get("anonymous_growth_bytes_per_second")
        reasons.append(_reason("anonymous_growth_bytes_per_second", speed, None, None, f"what grows: {grows.text}"))
    if (lowered := lowered_text(axis.growth.limits)) is not None:
        reasons.append(_reason("headroom_bytes", limits.headroom, None, None, lowered))
    throttled = signals.get("memory_high_per_second")
    if throttled:
        text = (
            f"over memory.high {throttled:.0f} times a second: the kernel slows it down to reclaim, and kills nothing"
        )
        reasons.append(_reason("memory_high_per_second", throttled, None, None, text))
    return tuple(reasons)


_ADVICE = {
    GrowthKind.PROMPT_CACHE: "give it a smaller prompt cache (--cache-ram) or fewer context checkpoints, or free memory",
    GrowthKind.LEAK: "restart the backend before the kernel ends it, and report the leak to its makers",
    GrowthKind.NEIGHBOUR: "end or move the other process, or give the cgroup more memory",
    GrowthKind.OUTSIDE: "end what grows, or give the backend's limit more memory",
    GrowthKind.LOADING: "repacked weights must fit: run it with --no-repack, or give it more memory",
}
_ADVICE_LOWERED = "raise the limit again, or restart the backend with a shorter context"
_ADVICE_OTHER = "free memory or restart the backend with a shorter context or a smaller prompt cache"


def _begun(
    before: MemoryState, after: MemoryState, reasons: tuple[Reason, ...], growth: GrowthState, whose: str | None
) -> tuple[tuple[EventName, str], ...]:
    low = (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL)
    if after in low and before not in low:
        grows, lowered = growth.growth, lowered_text(growth.limits)
        what = "" if lowered is None else f"; {lowered}"
        what += "" if grows.kind is GrowthKind.NONE else f"; what grows: {grows.text}"
        limit = "" if whose is None or whose in reasons[0].text else f" ({whose})"
        alone = lowered is not None and grows.kind is GrowthKind.NONE
        advice = _ADVICE_LOWERED if alone else _ADVICE.get(grows.kind, _ADVICE_OTHER)
        message = f"memory nears its limit{limit}: {reasons[0].text}{what}; {advice}, or the kernel will end a process"
        return ((EventName.MEMORY_NEAR_LIMIT, message),)
    return ()


def _recovered(before: MemoryState, after: MemoryState, limits: _Limits) -> tuple[tuple[EventName, str], ...]:
    if before not in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL) or after is not MemoryState.OK:
        return ()
    share = limits.headroom / limits.total if limits.total else 0.0
    message = (
        f"memory is enough again: of {format_bytes(limits.total)} that it may use, {format_bytes(limits.headroom)} "
        f"({format_ratio(share)}) are free or page cache, which can be given back; it is near its limit only below "
        f"{format_bytes(limits.near)}. How much of the model fits is another question: see paging"
    )
    return ((EventName.MEMORY_RECOVERED, message),)


def _reason(signal: str, value: float | None, limit: float | None, held: float | None, text: str) -> Reason:
    return Reason(axis="memory", signal=signal, value=value, limit=limit, held_seconds=held, text=text)
