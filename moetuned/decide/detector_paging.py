"""The paging axis: cold, warming, steady, streaming or thrashing, from the evidence of each tick and how long it lasted."""

from __future__ import annotations

import msgspec

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.paging_axis import MAX_STEP_SECONDS, PagingAxis, PagingStep, become, forget_idle, held, reason
from moetuned.decide.paging_evidence import (
    Best,
    Doing,
    Evidence,
    bytes_a_token,
    cheap_check,
    cost_checks,
    cost_untold,
    doing_checks,
    weigh,
)
from moetuned.decide.paging_idle import idle_checks, step_idle
from moetuned.decide.paging_starved import starved_reason, starved_seconds, starves
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendSample
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_bytes, format_duration, format_rate, format_ratio
from moetuned.schema.verdict import Check, Paging, Phase, Reason

__all__ = ["MAX_BESTS", "PagingAxis", "PagingStep", "best_of", "forget_idle", "hold", "paging_checks", "step_paging"]

MAX_BESTS = 32
_SWAPPING = "own_swap_in_bytes_per_second"
_WORKING = frozenset({Phase.PREFILL, Phase.DECODE, Phase.UNKNOWN})


def step_paging(
    axis: PagingAxis,
    signals: Signals,
    sample: BackendSample,
    phase: Phase,
    facts: BackendFacts,
    settings: DetectorSettings,
    *,
    same_process: bool,
) -> PagingStep:
    """Paging at this tick."""
    if not same_process or phase in (Phase.ABSENT, Phase.LOADING):
        return _restart(axis, signals, phase)
    if signals.dt_seconds is None:
        return PagingStep(axis, (reason("dt_seconds", None, None, None, "no earlier sample to compare with"),))
    if phase is Phase.IDLE:
        return step_idle(axis, signals, sample, facts, settings)
    return _working(forget_idle(axis), signals, sample, phase, facts, settings)


def _restart(axis: PagingAxis, signals: Signals, phase: Phase) -> PagingStep:
    paging, text = Paging.UNKNOWN, "nothing to page"
    if phase is Phase.LOADING:
        paging, text = Paging.COLD, "the model is being loaded"
    elif phase is not Phase.ABSENT:
        text = "a new process"
    since = axis.since if paging is axis.paging and axis.since is not None else signals.at_seconds
    begun = (
        ((EventName.THRASH_END, "it thrashes no more: the process ended or was replaced"),)
        if axis.paging is Paging.THRASHING
        else ()
    )
    # Another process has its own warm best, but the same model on the same machine is as fast again: the best is kept.
    stepped = PagingAxis(paging=paging, since=since, best=axis.best)
    return PagingStep(stepped, (reason("phase", None, None, None, text),), begun)


# --- working ---


def _working(
    axis: PagingAxis,
    signals: Signals,
    sample: BackendSample,
    phase: Phase,
    facts: BackendFacts,
    settings: DetectorSettings,
) -> PagingStep:
    dt = min(signals.dt_seconds or 0.0, MAX_STEP_SECONDS)
    thrashing = axis.paging is Paging.THRASHING
    busy = round(signals.get("busy_slots") or 0.0)
    best = best_of(axis, signals)
    evidence = weigh(signals, phase, facts, settings, best=best, paging=axis.paging)
    starved = starved_seconds(axis.starved_seconds, starves(signals, sample, phase, settings, best), dt)
    axis = msgspec.structs.replace(axis, starved_seconds=starved)
    if _is_starved(axis, settings):
        evidence = Evidence(evidence.doing, tuple(cost for cost in evidence.costs if cost.signal == _SWAPPING))
    if evidence.doing is Doing.UNKNOWN:
        why = reason("process_read_bytes_per_second", None, None, None, "whose reads these are is unknown")
        # Cold was true while it loaded; now that it works nobody knows.
        return PagingStep(become(axis, Paging.UNKNOWN, signals) if axis.paging is Paging.COLD else axis, (why,))
    untold = cost_untold(signals, phase, facts, settings, axis.paging)
    axis = _learn(_count(axis, evidence, dt, settings, untold=untold), signals, evidence, busy)
    if thrashing:
        stepped = _while_thrashing(axis, signals, evidence, settings, best, untold=untold)
    elif (cause := _cause(axis, evidence, settings)) is not None:
        return _thrash(axis, signals, cause)
    else:
        stepped = _calm(axis, signals, evidence, settings)
    if not _is_starved(axis, settings):
        return stepped
    return msgspec.structs.replace(
        stepped, reasons=(starved_reason(signals, best, settings, starved), *stepped.reasons)
    )


def _is_starved(axis: PagingAxis, settings: DetectorSettings) -> bool:
    return axis.starved_seconds >= 0.95 * settings.starved_hold_seconds


def _count(axis: PagingAxis, evidence: Evidence, dt: float, settings: DetectorSettings, *, untold: bool) -> PagingAxis:
    """How long each kind of evidence has lasted.

    Of the reads of a prompt and of a request's first token nobody knows what a token costs (`untold`): they are what the reads before
    them were, costly or calm, and begin and end nothing themselves. Requests of a few tokens tell for a second in four.
    """
    churning, quiet = evidence.doing is Doing.CHURNING, evidence.doing is Doing.QUIET
    strong = any(not cost.weak and not cost.blind for cost in evidence.costs)
    weak = strong or any(cost.weak for cost in evidence.costs)
    blind = weak or any(cost.blind for cost in evidence.costs)
    neutral = churning and untold and not strong

    def held(seconds: float, present: bool, needed: float) -> float:
        if neutral:
            return max(seconds, min(seconds + dt, needed)) if seconds and not axis.calm_seconds else seconds
        return seconds + dt if present else max(0.0, seconds - 2 * dt)

    return msgspec.structs.replace(
        axis,
        strong_seconds=held(axis.strong_seconds, strong, settings.thrash_hold_seconds),
        weak_seconds=held(axis.weak_seconds, weak, settings.weak_hold_seconds),
        blind_seconds=held(axis.blind_seconds, blind, settings.blind_hold_seconds),
        churn_seconds=axis.churn_seconds + dt if churning else max(0.0, axis.churn_seconds - 2 * dt),
        quiet_seconds=axis.quiet_seconds + dt if quiet else 0.0,
        calm_seconds=0.0 if evidence.costs or (neutral and not axis.calm_seconds) else axis.calm_seconds + dt,
    )


def _learn(axis: PagingAxis, signals: Signals, evidence: Evidence, busy: int) -> PagingAxis:
    """Remember the best speed by busy slots; only one that lasted two ticks and cost nothing too much counts."""
    speed, last, token = signals.get("tokens_per_second"), axis.last_tokens_per_second, bytes_a_token(signals)
    best = axis.best
    if speed is not None and last is not None and token is not None and busy and not evidence.costs:
        lasting = min(speed, last)
        others = tuple(one for one in best if one.busy_slots != busy)
        known = next((one for one in best if one.busy_slots == busy), None)
        if known is None or lasting > known.tokens_per_second:
            best = (*others, Best(busy, lasting, token, signals.get("missing_bytes_per_token")))[-MAX_BESTS:]
    return msgspec.structs.replace(axis, last_tokens_per_second=speed, best=best)


def _cause(axis: PagingAxis, evidence: Evidence, settings: DetectorSettings) -> Check | None:
    """Why it thrashes now; None while it does not, or while this very tick shows no cost (it is getting better)."""
    for cost in evidence.costs:
        lasted, needed = hold(axis, cost, settings)
        if lasted >= 0.95 * needed:
            return cost
    return None


def hold(axis: PagingAxis, cost: Check, settings: DetectorSettings) -> tuple[float, float]:
    """Seconds that signs as sure as this one have been beyond their limits, and seconds they must be."""
    if cost.blind:
        return axis.blind_seconds, settings.blind_hold_seconds
    if cost.weak:
        return axis.weak_seconds, settings.weak_hold_seconds
    return axis.strong_seconds, settings.thrash_hold_seconds


def _thrash(axis: PagingAxis, signals: Signals, cause: Check) -> PagingStep:
    reasons = _thrash_reasons(axis, signals, (cause,))
    message = f"it thrashes: {cause.text}; {reasons[-1].text}; {_ADVICE.get(cause.signal, _ADVICE_OTHER)}"
    stepped = become(axis, Paging.THRASHING, signals, calm_seconds=0.0)
    return PagingStep(stepped, reasons, ((EventName.THRASH_BEGIN, message),))


_ADVICE = {
    "cache_lost_ratio": "give back the memory that something else took, or raise the limit",
    "bytes_per_token": "lower the read-ahead of its disk, or give it more memory",
    "read_amplification": "lower the read-ahead of its disk, or give it more memory",
    "bytes_per_major_fault": "lower the read-ahead of its disk, or give it more memory",
    "own_swap_in_bytes_per_second": "end what takes its memory, give it a shorter context or a smaller prompt cache, or more memory",
}
_ADVICE_OTHER = "give it more memory, or use a smaller model or context"


def _thrash_reasons(axis: PagingAxis, signals: Signals, costs: tuple[Check, ...]) -> tuple[Reason, ...]:
    held = max(axis.strong_seconds, axis.weak_seconds, axis.blind_seconds)
    reasons = [reason(cost.signal, cost.value, cost.limit, held, cost.text) for cost in costs]
    return (*reasons, _refault_reason(axis, signals))


def _refault_reason(axis: PagingAxis, signals: Signals) -> Reason:
    refaults, read = signals.get("refault_bytes_per_second"), signals.get("process_read_bytes_per_second")
    # Pages of reads that are under way are counted as refaults before they are counted as read.
    again = refaults if refaults is None or read is None else min(refaults, read)
    text = f"refaults {format_rate(again)} of {format_rate(read)} read for {format_duration(axis.churn_seconds)}"
    return reason("refault_ratio", signals.get("refault_ratio"), None, axis.churn_seconds, text)


def _while_thrashing(
    axis: PagingAxis,
    signals: Signals,
    evidence: Evidence,
    settings: DetectorSettings,
    best: Best | None,
    *,
    untold: bool,
) -> PagingStep:
    lull = evidence.doing is Doing.QUIET and not _is_starved(axis, settings) and not _works(signals, best, settings)
    needed = settings.lull_release_seconds if lull else settings.thrash_release_seconds
    if evidence.costs or axis.calm_seconds < needed:
        return PagingStep(axis, _thrash_reasons(axis, signals, evidence.costs))
    if evidence.doing is Doing.CHURNING and (untold or axis.calm_seconds < settings.streaming_hold_seconds):
        return PagingStep(axis, _thrash_reasons(axis, signals, ()))
    paging = {Doing.QUIET: Paging.STEADY, Doing.FILLING: Paging.WARMING}.get(evidence.doing, Paging.STREAMING)
    ended = _calm_reason(axis, signals, evidence, paging)
    lasted = format_duration(signals.at_seconds - (axis.since or signals.at_seconds))
    message = f"the thrash is over after {lasted}: {ended.text}"
    stepped = become(axis, paging, signals, strong_seconds=0.0, weak_seconds=0.0, blind_seconds=0.0)
    return PagingStep(stepped, (ended,), ((EventName.THRASH_END, message),))


def _works(signals: Signals, best: Best | None, settings: DetectorSettings) -> bool:
    """Whether it generates, and not far below its best."""
    speed = signals.get("tokens_per_second")
    return speed is not None and speed > (0.0 if best is None else settings.slow_ratio * best.tokens_per_second)


def _calm(axis: PagingAxis, signals: Signals, evidence: Evidence, settings: DetectorSettings) -> PagingStep:
    paging = axis.paging
    if evidence.doing is Doing.QUIET:
        if axis.quiet_seconds >= 0.95 * settings.steady_hold_seconds:
            paging = Paging.STEADY
    elif evidence.doing is Doing.FILLING:
        paging = Paging.WARMING
    elif axis.churn_seconds >= settings.streaming_hold_seconds and not evidence.costs:
        paging = Paging.STREAMING
    elif paging is not Paging.STREAMING:
        paging = Paging.WARMING
    reasons = (
        *(reason(cost.signal, cost.value, cost.limit, axis.strong_seconds, cost.text) for cost in evidence.costs),
        _calm_reason(axis, signals, evidence, paging),
    )
    return PagingStep(become(axis, paging, signals), reasons)


def _calm_reason(axis: PagingAxis, signals: Signals, evidence: Evidence, paging: Paging) -> Reason:
    if paging is Paging.STREAMING:
        token, missing = signals.get("bytes_per_token"), signals.get("missing_bytes_per_token")
        if token is not None and missing is not None:
            text = (
                f"{format_bytes(token)} read a token, {format_bytes(missing)} forecast for the experts that are missing"
            )
            return reason("bytes_per_token", token, missing, axis.churn_seconds, text)
        return _refault_reason(axis, signals)
    read, fill = signals.get("process_read_bytes_per_second"), signals.get("cache_fill_ratio")
    if paging is Paging.WARMING and evidence.doing is Doing.CHURNING:
        return _refault_reason(axis, signals)
    if paging is Paging.WARMING:
        text = f"{format_rate(read)} read"
        text += "" if fill is None else f", {format_ratio(max(0.0, min(1.0, fill)))} of it fills the page cache"
        return reason("cache_fill_ratio", fill, None, None, text)
    return reason("process_read_bytes_per_second", read, None, axis.quiet_seconds, f"{format_rate(read)} read")


# --- as it stands, for people; a tick does not ask ---


def paging_checks(
    axis: PagingAxis,
    signals: Signals,
    sample: BackendSample,
    phase: Phase,
    facts: BackendFacts,
    settings: DetectorSettings,
) -> tuple[Check, ...]:
    """What the rules of this axis look at in this phase, as it stands after this tick's step."""
    if phase in (Phase.ABSENT, Phase.LOADING) or signals.dt_seconds is None:
        return ()
    if phase is Phase.IDLE:
        return idle_checks(axis, signals, sample, facts, settings)
    best = best_of(axis, signals)
    costs = cost_checks(signals, phase, facts, settings, best=best, paging=axis.paging)
    if _is_starved(axis, settings):
        costs = tuple(cost if cost.signal == _SWAPPING else _for_nothing(cost) for cost in costs)
    quiet, little, filling, again = doing_checks(signals, facts, settings)
    steady = settings.steady_hold_seconds
    return (
        held(quiet, axis.quiet_seconds, steady, "steady"),
        held(little, axis.quiet_seconds, steady, "steady"),
        held(filling, 0.0, 0.0, "warming"),
        held(again, axis.churn_seconds, settings.streaming_hold_seconds, "streaming"),
        cheap_check(signals, facts, settings, axis.paging),
        *(held(cost, *hold(axis, cost, settings), "thrashing") for cost in costs),
    )


def _for_nothing(cost: Check) -> Check:
    aside = "it waits for the processor, so its reads cost it nothing"
    return msgspec.structs.replace(cost, beyond=False, aside=aside) if cost.beyond else cost


def best_of(axis: PagingAxis, signals: Signals) -> Best | None:
    """The warm best with as many slots busy as now."""
    busy = round(signals.get("busy_slots") or 0.0)
    return next((one for one in axis.best if one.busy_slots == busy), None)
