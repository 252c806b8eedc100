"""Whether the devices under a model give far less than they have given before.

A device is compared with itself only, and only while nothing else can be the reason: it is busy all the time, the backend is the only one
that uses it, and the requests are at least as large and as many at a time as they were then (more of either never makes a device
that is well give less). Reading in order tells nothing about reading here and there: a disk that turns is ten times slower at that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from moetuned.schema.device import DeviceFacts, Pace
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_bytes, format_duration, format_rate, format_ratio
from moetuned.schema.verdict import Phase

STRETCH_SECONDS = 5.0
"""Figures are averages over so long: single seconds scatter."""
BUSY_RATIO = 0.9
ALONE_RATIO = 0.8
"""The backend reads at least this share of what the devices read and write."""
NOT_THESE_RATIO = 1.5
"""It reads so many times what the devices read: not from these devices, or not only."""
SLOW_RATIO = 0.25
HOLD_SECONDS = 60.0
FORGET_SECONDS = 120.0
"""So long without a stretch that can be judged, and it is as if it had never been slow."""
MOST_PACES = 24
_MOST_STEP_SECONDS = 5.0
_SIGNALS = (
    "device_read_bytes_per_second",
    "device_write_bytes_per_second",
    "device_busy_ratio",
    "device_queue_length",
    "device_read_ios_per_second",
    "process_read_bytes_per_second",
)
_PATTERN = {Phase.LOADING: True, Phase.PREFILL: False, Phase.DECODE: False}


class PaceState(msgspec.Struct, frozen=True):
    """The stretch that is being summed up, and for how long it has been slow."""

    in_order: bool | None = None
    seconds: float = 0.0
    read_bytes: float = 0.0
    read_ios: float = 0.0
    queue_seconds: float = 0.0
    slow_seconds: float = 0.0
    judged_at: float | None = None
    told: bool = False


class PaceStep(msgspec.Struct, frozen=True):
    """`pace`: a stretch that was completed now. `slow`: it has just been slow for long enough; the best that is comparable."""

    state: PaceState
    pace: Pace | None = None
    slow: Pace | None = None


def step(state: PaceState, signals: Signals, phase: Phase, best: Sequence[Pace]) -> PaceStep:
    """One tick more. `best`: what these devices have done before."""
    at, dt = signals.at_seconds, min(signals.dt_seconds or 0.0, _MOST_STEP_SECONDS)
    if state.judged_at is not None and at - state.judged_at > FORGET_SECONDS:
        state = msgspec.structs.replace(state, slow_seconds=0.0, judged_at=None)
    in_order = _PATTERN.get(phase)
    if in_order is None or dt <= 0:
        return PaceStep(_cleared(state))
    values = [signals.get(name) for name in _SIGNALS]
    if None in values:
        return PaceStep(_cleared(state))
    read, written, busy, queue, ios, own = (value or 0.0 for value in values)
    alone = ALONE_RATIO * (read + written) <= own <= NOT_THESE_RATIO * read
    if busy < BUSY_RATIO or not alone or ios <= 0:
        return PaceStep(_cleared(state))
    if state.in_order is not in_order:
        state = _cleared(state)
    state = msgspec.structs.replace(
        state,
        in_order=in_order,
        seconds=state.seconds + dt,
        read_bytes=state.read_bytes + read * dt,
        read_ios=state.read_ios + ios * dt,
        queue_seconds=state.queue_seconds + queue * dt,
    )
    if state.seconds < STRETCH_SECONDS:
        return PaceStep(state)
    pace = Pace(
        in_order,
        state.read_bytes / state.read_ios,
        state.queue_seconds / state.seconds,
        state.read_bytes / state.seconds,
    )
    return _judge(state, pace, best, at)


def _judge(state: PaceState, pace: Pace, best: Sequence[Pace], at: float) -> PaceStep:
    reference = comparable(pace, best)
    is_slow = reference is not None and pace.bytes_per_second < SLOW_RATIO * reference.bytes_per_second
    slow_seconds = state.slow_seconds + state.seconds if is_slow else 0.0
    tell = is_slow and not state.told and slow_seconds >= HOLD_SECONDS
    after = PaceState(slow_seconds=slow_seconds, judged_at=at, told=state.told or tell)
    return PaceStep(after, pace, reference if tell else None)


def _cleared(state: PaceState) -> PaceState:
    return PaceState(slow_seconds=state.slow_seconds, judged_at=state.judged_at, told=state.told)


def comparable(pace: Pace, best: Iterable[Pace]) -> Pace | None:
    """The fastest of `best` that the devices should reach at `pace`'s requests, too: as small or smaller, as few or fewer at a time."""
    fitting = (
        one
        for one in best
        if (pace.in_order or not one.in_order)
        and one.request_bytes <= 1.1 * pace.request_bytes
        and one.queue_length <= 1.1 * pace.queue_length
    )
    return max(fitting, key=lambda one: one.bytes_per_second, default=None)


def sequential(best: Iterable[Pace]) -> float | None:
    """The most that was seen of a read in order, bytes a second; None: nothing."""
    return max((one.bytes_per_second for one in best if one.in_order), default=None)


def remember(best: Sequence[Pace], pace: Pace) -> tuple[Pace, ...]:
    """`best` with `pace`, if that says more; what is as slow with more is left out. At most 24, the newest."""
    known = comparable(pace, best)
    if known is not None and known.bytes_per_second >= pace.bytes_per_second:
        return tuple(best)
    kept = [one for one in best if comparable(one, (pace,)) is None or one.bytes_per_second > pace.bytes_per_second]
    return (*kept, pace)[-MOST_PACES:]


def sentence(devices: Sequence[DeviceFacts], pace: Pace, best: Pace, held_seconds: float) -> str:
    """What is slow and what to do, without a full stop."""
    names = ", ".join(one.name if one.model is None else f"{one.name} ({one.model})" for one in devices)
    several = len(devices) > 1
    look = " and ".join(f"smartctl -a /dev/{one.name}" for one in devices[:2])
    return (
        f"the {'disks' if several else 'disk'} under its model {'are' if several else 'is'} slow: {names} gave "
        f"{format_rate(pace.bytes_per_second)} for {format_duration(held_seconds)} though always busy and used by nobody else, "
        f"{format_ratio(pace.bytes_per_second / best.bytes_per_second)} of the {format_rate(best.bytes_per_second)} seen before with "
        f"requests as large ({format_bytes(pace.request_bytes)}); it may be hot, worn, failing, or a virtual disk that is being "
        f"throttled: see {look} and the kernel's log"
    )
