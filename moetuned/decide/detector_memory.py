"""The memory axis: how near what cannot be reclaimed is to its limit, by level and by trend."""

from __future__ import annotations

import msgspec

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.schema.event import EventName
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_bytes, format_duration, format_ratio
from moetuned.schema.verdict import MemoryState, Phase, Reason

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


def step_memory(axis: MemoryAxis, signals: Signals, phase: Phase, settings: DetectorSettings) -> MemoryStep:
    """Memory at this tick. Unknown headroom is unknown and begins nothing."""
    limits = _limits(signals, settings)
    if limits is None:
        reason = _reason("headroom_bytes", None, None, None, "headroom is unknown")
        since = axis.since if not axis.known and axis.since is not None else signals.at_seconds
        return MemoryStep(MemoryAxis(memory=axis.memory, since=since, settled_seconds=axis.settled_seconds), (reason,))
    dt = min(signals.dt_seconds or 0.0, 5.0)
    recovering = axis.headroom_bytes is not None and limits.headroom > axis.headroom_bytes + RISING_RATIO * limits.total
    settled = 0.0 if phase in (Phase.LOADING, Phase.ABSENT) else axis.settled_seconds + dt
    by_trend = settled > TREND_SECONDS and _by_trend(signals, limits, settings)
    room = signals.get("oom_room_bytes")
    critical_now = limits.headroom < limits.critical and (room is None or room < limits.critical)
    near_now = limits.headroom < limits.near or by_trend
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
    )
    reasons = _reasons(signals, limits, stepped, settings, by_trend=by_trend)
    return MemoryStep(stepped, reasons, _begun(axis.memory, memory, reasons))


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


def _by_trend(signals: Signals, limits: _Limits, settings: DetectorSettings) -> bool:
    """Whether growth alone is a reason."""
    seconds = signals.get("seconds_to_limit")
    return (
        seconds is not None
        and seconds <= settings.near_seconds
        and limits.headroom <= settings.trend_headroom_ratio * limits.total
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
    signals: Signals, limits: _Limits, axis: MemoryAxis, settings: DetectorSettings, *, by_trend: bool
) -> tuple[Reason, ...]:
    share = limits.headroom / limits.total if limits.total else 0.0
    text = (
        f"headroom {format_bytes(limits.headroom)} of {format_bytes(limits.total)} ({format_ratio(share)}; "
        f"near its limit below {format_bytes(limits.near)}, critical below {format_bytes(limits.critical)})"
    )
    held = axis.near_seconds or None
    reasons = [_reason("headroom_bytes", limits.headroom, limits.near, held, text)]
    seconds = signals.get("seconds_to_limit")
    if by_trend and seconds is not None:
        trend = (
            f"memory that cannot be reclaimed grows {format_bytes(limits.headroom / max(seconds, 0.1))}/s: "
            f"at its limit in {format_duration(seconds)} (limit {format_duration(settings.near_seconds)})"
        )
        reasons.insert(0, _reason("seconds_to_limit", seconds, settings.near_seconds, held, trend))
    return tuple(reasons)


def _begun(before: MemoryState, after: MemoryState, reasons: tuple[Reason, ...]) -> tuple[tuple[EventName, str], ...]:
    low = (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL)
    if after in low and before not in low:
        message = (
            f"memory nears its limit: {reasons[0].text}; free memory or restart the backend with a shorter context "
            "or a smaller prompt cache, or the kernel will end a process"
        )
        return ((EventName.MEMORY_NEAR_LIMIT, message),)
    if before in low and after is MemoryState.OK:
        return ((EventName.MEMORY_RECOVERED, f"memory is enough again: {reasons[0].text}"),)
    return ()


def _reason(signal: str, value: float | None, limit: float | None, held: float | None, text: str) -> Reason:
    return Reason(axis="memory", signal=signal, value=value, limit=limit, held_seconds=held, text=text)
