"""Hung or only slow: a backend that has something to do and at which nothing moves at all, for long.

A prompt that reads for minutes is never hung: reads, major faults, processor time and tokens are all movement, and so is waiting
for a disk (process state D; on the other threads' part a busy disk that completes nothing). One that is stopped (SIGSTOP, a
debugger) is paused. /slots and /health that do not answer between batches mean busy, so silence alone says nothing: it is hung only
where the kernel's own figures are known and stand still too. State of a process: proc(5), field 3 of /proc/<pid>/stat, which is that
of its main thread.
"""

from __future__ import annotations

import msgspec

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.schema.sample import BackendHttp, BackendSample, ProcessCounters, Slot
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_duration
from moetuned.schema.verdict import Check, Reason

MAX_STEP_SECONDS = 5.0
STOPPED_STATES = frozenset("Tt")
"""Stopped by a signal, and by a tracer."""
WAITING_STATE = "D"
STILL_CPU_RATIO = 0.05
"""Of one core: what answering our own questions and timers costs a server that does nothing else."""
STUCK_DISK_BUSY_RATIO = 0.9
STUCK_STALL_RATIO = 0.9


class Stillness(msgspec.Struct, frozen=True):
    """What is remembered of one process. `busy`: the last that was heard of its slots; `still_seconds`: since when nothing moves."""

    busy: bool = False
    slots: tuple[Slot, ...] | None = None
    read_bytes: int | None = None
    major_faults: int | None = None
    cpu_ticks: int | None = None
    still_seconds: float = 0.0
    paused: bool = False
    hung: bool = False
    moves: str | None = None
    """What moved last, or what is unknown: why it does not count as still."""


def step_stillness(
    state: Stillness,
    sample: BackendSample,
    signals: Signals,
    settings: DetectorSettings,
    *,
    was_ready: bool,
    clock_ticks: int,
) -> Stillness:
    """Stillness at this tick. `was_ready`: this process has answered before; one that loads is no business of ours."""
    process = sample.process
    if process is None:
        return Stillness()
    busy = _busy(state, sample.http)
    if not busy and not (was_ready and _silent(sample.http)):
        return Stillness(busy=busy)
    slots = None if sample.http is None else sample.http.slots
    paused = process.state in STOPPED_STATES
    moves = _moves(state, process, slots, signals, clock_ticks)
    dt = min(signals.dt_seconds or 0.0, MAX_STEP_SECONDS)
    still = 0.0 if moves is not None or paused else state.still_seconds + dt
    return Stillness(
        busy=busy,
        slots=state.slots if slots is None else slots,
        read_bytes=process.read_bytes,
        major_faults=process.major_faults,
        cpu_ticks=process.cpu_ticks,
        still_seconds=still,
        paused=paused,
        hung=still >= settings.hung_hold_seconds,
        moves=moves,
    )


def reasons_of(state: Stillness, settings: DetectorSettings) -> tuple[Reason, ...]:
    """What is to be said of it beside the phase: that it hangs or is paused."""
    if state.paused:
        text = "it is stopped (SIGSTOP or a debugger): nothing moves until it is continued (SIGCONT)"
        return (Reason(axis="phase", signal="paused", value=None, limit=None, held_seconds=None, text=text),)
    if not state.hung:
        return ()
    limit = settings.hung_hold_seconds
    text = f"{hung_text(state)} (limit {format_duration(limit)})"
    return (
        Reason(
            axis="phase",
            signal="hung",
            value=state.still_seconds,
            limit=limit,
            held_seconds=state.still_seconds,
            text=text,
        ),
    )


def hung_text(state: Stillness) -> str:
    """One sentence of what stands still, and for how long."""
    task = "a request is waiting" if state.busy else "it answers nothing"
    return f"hung: {task}, and for {format_duration(state.still_seconds)} no token, no read, no processor time and no wait for a disk"


def hung_check(state: Stillness, sample: BackendSample, settings: DetectorSettings) -> Check:
    """The rule as it stands."""
    counted = state.busy or state.still_seconds > 0 or state.moves is not None or state.paused
    unknown = state.moves if state.moves in _UNKNOWN else None
    aside = None
    if state.paused:
        aside = "it is stopped (SIGSTOP or a debugger), which is no hang"
    elif not counted or sample.process is None:
        aside = "no request is worked on"
    elif state.moves is not None and unknown is None:
        aside = state.moves
    return Check(
        "hung",
        value=state.still_seconds if counted and unknown is None else None,
        limit=settings.hung_hold_seconds,
        beyond=None if unknown is not None else state.still_seconds > 0,
        axis="phase",
        held_seconds=state.still_seconds,
        needed_seconds=settings.hung_hold_seconds,
        unknown=unknown,
        aside=aside,
        text=hung_text(state) if state.still_seconds > 0 else "",
        would="hung",
    )


def _busy(state: Stillness, http: BackendHttp | None) -> bool:
    """Whether it has something to do; the last that it said where it does not answer."""
    if http is None or http.health in ("busy", "unreachable", "error"):
        return state.busy
    if http.health == "loading" or http.sleeping:
        return False
    if http.slots is not None:
        return any(slot.processing for slot in http.slots)
    if http.requests_processing is not None:
        return http.requests_processing > 0
    return state.busy and http.slots_asked


def _silent(http: BackendHttp | None) -> bool:
    """Whether it was asked how it is and gave no answer. No fresh question is no silence of its."""
    return http is not None and http.health in ("busy", "unreachable")


_UNKNOWN = (
    "its processor time is unknown",
    "what it reads is unknown (/proc/<pid>/io needs root or the same user)",
    "no earlier sample to compare with",
)


def _moves(
    state: Stillness,
    process: ProcessCounters,
    slots: tuple[Slot, ...] | None,
    signals: Signals,
    clock_ticks: int,
) -> str | None:
    """What moved since the sample before, or is unknown; None when all is known and nothing moved."""
    if process.cpu_ticks is None:
        return _UNKNOWN[0]
    if process.read_bytes is None:
        return _UNKNOWN[1]
    if state.cpu_ticks is None or state.read_bytes is None or not signals.dt_seconds:
        return _UNKNOWN[2]
    if process.state == WAITING_STATE:
        return "it waits for a disk"
    if process.read_bytes != state.read_bytes or process.major_faults != state.major_faults:
        return "it reads"
    if process.cpu_ticks - state.cpu_ticks > STILL_CPU_RATIO * clock_ticks * signals.dt_seconds:
        return "it computes"
    if slots is not None and state.slots is not None and slots != state.slots:
        return "tokens move"
    if _disk_is_stuck(signals):
        return "a read waits in its disk"
    return None


def _disk_is_stuck(signals: Signals) -> bool:
    """Whether a thread of it may wait for a disk without being its main one: its disk is busy and completes no read.

    Where the disk's figures are unknown, that somebody on the machine waits for one all the time (PSI).
    """
    busy, done = signals.values.get("device_busy_ratio"), signals.values.get("device_read_ios_per_second")
    if busy is not None and done is not None:
        return busy >= STUCK_DISK_BUSY_RATIO and done == 0
    stalled = signals.values.get("machine_stall_io_some_ratio")
    return stalled is not None and stalled >= STUCK_STALL_RATIO
