"""The verdict of one backend as one plain sentence: what is wrong first, then what it costs."""

from __future__ import annotations

from collections.abc import Mapping

from moetuned.decide.paging_starved import SIGNAL as STARVED
from moetuned.decide.prefill_text import prefill_progress
from moetuned.schema.snapshot import MemoryView, PrefillView
from moetuned.schema.units import format_bytes, format_duration, format_rate, format_ratio
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict

_PHASES = {
    Phase.ABSENT: "is not running",
    Phase.LOADING: "is loading its model",
    Phase.IDLE: "is idle",
    Phase.PREFILL: "is reading a prompt",
    Phase.DECODE: "is answering",
    Phase.UNKNOWN: "is doing something that cannot be seen",
}


def sentence(
    verdict: Verdict,
    signals: Mapping[str, float | None],
    memory: MemoryView,
    now: float,
    absence: str | None = None,
    prefill: PrefillView | None = None,
) -> str:
    """One sentence, without the backend's name and without a full stop; `now` is monotonic seconds.

    `absence`: what is known of why it does not run or does not answer any more, a sentence of the same kind. `prefill`: how far
    the prompt that it reads is.
    """
    still = _still(verdict)
    if verdict.phase == Phase.ABSENT or (verdict.phase == Phase.UNKNOWN and absence is not None and still is None):
        return absence or "is not running"
    progress = "" if prefill is None or verdict.phase != Phase.PREFILL else prefill_progress(prefill)
    parts = [still or _paging(verdict, signals, now, progress)]
    if (text := _memory(verdict, memory, now)) is not None:
        parts.insert(0, text)
    return "; ".join(parts)


def _since(since: float | None, now: float) -> str:
    return "" if since is None or now - since < 1 else f" for {format_duration(now - since)}"


def _reads(signals: Mapping[str, float | None]) -> str:
    rate = signals.get("process_read_bytes_per_second")
    return "" if rate is None else f", reads {format_rate(rate)}"


def _speed(signals: Mapping[str, float | None]) -> str:
    speed = signals.get("tokens_per_second")
    return "" if not speed else f", {speed:.1f} tokens/s"


def _still(verdict: Verdict) -> str | None:
    """That it hangs or is paused; nothing else counts then."""
    for reason in verdict.reasons:
        if reason.axis == "phase" and reason.signal == "hung":
            return f"hangs: for {format_duration(reason.value)} it has neither read nor computed nor given a token"
        if reason.axis == "phase" and reason.signal == "paused":
            return "is paused: its process is stopped (SIGSTOP or a debugger)"
    return None


def _paging(verdict: Verdict, signals: Mapping[str, float | None], now: float, progress: str) -> str:
    doing = _PHASES[verdict.phase]
    if progress and verdict.paging != Paging.THRASHING:
        return f"is reading the prompt: {progress}"
    if verdict.phase == Phase.LOADING:
        return f"{doing}{_reads(signals)}"
    starved = _starved(verdict)
    match verdict.paging:
        case Paging.THRASHING:
            return f"is thrashing{_since(verdict.paging_since, now)}: it reads the same bytes again and again{_reads(signals)}{_speed(signals)}{f'; the prompt: {progress}' if progress else ''}"
        case Paging.STREAMING:
            return (
                f"{doing} and streams experts from disk at the expected cost{_reads(signals)}{_speed(signals)}{starved}"
            )
        case Paging.COLD | Paging.WARMING:
            state = "cold" if verdict.paging == Paging.COLD else "warming up"
            resident = signals.get("resident_ratio")
            share = "" if resident is None else f", {format_ratio(resident)} of the model in memory"
            return f"{doing} and is {state}{_reads(signals)}{share}{starved}"
        case Paging.STEADY:
            return (
                f"{doing}{_speed(signals)}{starved}"
                if starved
                else f"{doing}; the experts it uses are in memory{_speed(signals)}"
            )
        case _:
            return f"{doing}; whether it thrashes cannot be told yet"


def _starved(verdict: Verdict) -> str:
    """That it waits for the processor."""
    for reason in verdict.reasons:
        if reason.axis == "paging" and reason.signal == STARVED:
            return f"; {reason.text}"
    return ""


def _memory(verdict: Verdict, memory: MemoryView, now: float) -> str | None:
    if verdict.memory not in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
        return None
    word = "close to" if verdict.memory == MemoryState.NEAR_LIMIT else "at"
    left = f"{format_bytes(memory.headroom_bytes)} of {format_bytes(memory.limit_bytes)} left"
    soon = "" if memory.seconds_to_limit is None else f", full in about {format_duration(memory.seconds_to_limit)}"
    return f"memory is {word} its limit{_since(verdict.memory_since, now)} ({left}{soon})"
