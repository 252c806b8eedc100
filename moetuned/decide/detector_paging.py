"""The paging axis: cold, warming, steady, streaming or thrashing, from the evidence of each tick and how long it lasted."""

from __future__ import annotations

import msgspec

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.facts import BackendFacts
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
from moetuned.decide.paging_starved import starved_reason, starved_seconds, starves
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendSample
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_bytes, format_duration, format_rate, format_ratio
from moetuned.schema.verdict import Check, Paging, Phase, Reason

MAX_STEP_SECONDS = 5.0
MAX_BESTS = 32
_ALIKE = 0.75
"""As fast as this share of its best it uses the processor as it does then."""
_WORKING = frozenset({Phase.PREFILL, Phase.DECODE, Phase.UNKNOWN})


class PagingAxis(msgspec.Struct, frozen=True):
    """What is remembered. `*_seconds`: how long the evidence has lasted; `best`: by busy slots; `scan_mapped_bytes`: what the process
    had mapped when `resident_bytes` were found."""

    paging: Paging = Paging.UNKNOWN
    since: float | None = None
    strong_seconds: float = 0.0
    weak_seconds: float = 0.0
    blind_seconds: float = 0.0
    churn_seconds: float = 0.0
    quiet_seconds: float = 0.0
    calm_seconds: float = 0.0
    idle_seconds: float = 0.0
    evicted_seconds: float = 0.0
    evicted: bool = False
    idle_mapped_bytes: int | None = None
    idle_resident_bytes: int | None = None
    resident_bytes: int | None = None
    scan_mapped_bytes: int | None = None
    starved_seconds: float = 0.0
    last_tokens_per_second: float | None = None
    best: tuple[Best, ...] = ()


class PagingStep(msgspec.Struct, frozen=True):
    """The next state, why, and what began."""

    axis: PagingAxis
    reasons: tuple[Reason, ...]
    begun: tuple[tuple[EventName, str], ...] = ()


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
        return PagingStep(axis, (_reason("dt_seconds", None, None, None, "no earlier sample to compare with"),))
    if phase is Phase.IDLE:
        return _idle(axis, signals, sample, facts, settings)
    return _working(forget_idle(axis), signals, phase, facts, settings)


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
    return PagingStep(stepped, (_reason("phase", None, None, None, text),), begun)


def forget_idle(axis: PagingAxis) -> PagingAxis:
    """Compare with nothing that was seen before: what was in memory while it was idle, and for how long."""
    return msgspec.structs.replace(
        axis,
        idle_seconds=0.0,
        evicted_seconds=0.0,
        evicted=False,
        idle_mapped_bytes=None,
        idle_resident_bytes=None,
        resident_bytes=None,
        scan_mapped_bytes=None,
    )


# --- idle: nothing is asked of the model; has somebody else pushed it out? ---


def _idle(
    axis: PagingAxis, signals: Signals, sample: BackendSample, facts: BackendFacts, settings: DetectorSettings
) -> PagingStep:
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
        reason = _reason("resident_ratio", lost, settings.evicted_ratio, axis.evicted_seconds, text)
        ended = (
            ((EventName.THRASH_END, "it thrashes no more: requests stopped"),)
            if axis.paging is Paging.THRASHING
            else ()
        )
        begun = (*ended, (EventName.CACHE_EVICTED, message))
        return PagingStep(_become(axis, Paging.COLD, signals, evicted=True), (reason,), begun)
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
        reason = _reason("resident_ratio", full.value, settings.steady_resident_ratio, axis.idle_seconds, text)
        # What leaves memory from now on is told anew.
        back = _become(axis, Paging.STEADY, signals, evicted=False, evicted_seconds=0.0)
        return PagingStep(msgspec.structs.replace(back, idle_mapped_bytes=mapped), (reason,))
    text = f"{format_ratio(check.value)} of the model left the page cache while it was idle"
    if not check.beyond:
        text = f"idle; the model was pushed out of memory, and {format_ratio(full.value)} of it is resident"
    reason = _reason("resident_ratio", check.value, settings.evicted_ratio, axis.evicted_seconds, text)
    return PagingStep(axis, (reason,))


def _idle_rest(
    axis: PagingAxis, signals: Signals, mapped: int | None, facts: BackendFacts, settings: DetectorSettings
) -> PagingStep:
    if axis.paging is Paging.THRASHING:
        if axis.idle_seconds < settings.idle_release_seconds:
            text = f"idle for {format_duration(axis.idle_seconds)} (a thrash is over after {settings.idle_release_seconds:.0f} s)"
            return PagingStep(axis, (_reason("busy_slots", 0.0, None, axis.idle_seconds, text),))
        message = "requests stopped, so nothing thrashes now; it may begin again with the next one"
        reason = _reason("busy_slots", 0.0, None, axis.idle_seconds, "idle; it was thrashing before")
        return PagingStep(_become(axis, Paging.UNKNOWN, signals), (reason,), ((EventName.THRASH_END, message),))
    check = _full(axis, signals, mapped, facts, settings)
    ratio = check.value
    if check.beyond:
        text = f"idle, {format_ratio(ratio)} of the model resident"
        reason = _reason("resident_ratio", ratio, settings.steady_resident_ratio, axis.idle_seconds, text)
        return PagingStep(_become(axis, Paging.STEADY, signals), (reason,))
    text = f"idle for {format_duration(axis.idle_seconds)}; as it was when it worked last"
    return PagingStep(axis, (_reason("busy_slots", 0.0, None, axis.idle_seconds, text),))


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
        return by_scan if axis.idle_resident_bytes > resident else None
    # What is resident is not lost, however little of it the process has mapped.
    return max(by_scan, min(unmapped, 1.0 - now / size))


def _fell(earlier: int | None, now: int | None) -> int:
    return 0 if earlier is None or now is None else max(0, earlier - now)


def _largest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


# --- working ---


def _working(
    axis: PagingAxis, signals: Signals, phase: Phase, facts: BackendFacts, settings: DetectorSettings
) -> PagingStep:
    dt = min(signals.dt_seconds or 0.0, MAX_STEP_SECONDS)
    thrashing = axis.paging is Paging.THRASHING
    busy = round(signals.get("busy_slots") or 0.0)
    best = best_of(axis, signals)
    evidence = weigh(signals, phase, facts, settings, best=best, paging=axis.paging)
    starved = starved_seconds(axis.starved_seconds, starves(signals, phase, settings, best), dt)
    axis = msgspec.structs.replace(axis, starved_seconds=starved)
    if _is_starved(axis, settings):
        evidence = Evidence(evidence.doing, tuple(cost for cost in evidence.costs if cost.signal == _SWAPPING))
    if evidence.doing is Doing.UNKNOWN:
        reason = _reason("process_read_bytes_per_second", None, None, None, "whose reads these are is unknown")
        # Cold was true while it loaded; now that it works nobody knows.
        return PagingStep(_become(axis, Paging.UNKNOWN, signals) if axis.paging is Paging.COLD else axis, (reason,))
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
    return msgspec.structs.replace(stepped, reasons=(starved_reason(signals, best, starved), *stepped.reasons))


_SWAPPING = "own_swap_in_bytes_per_second"


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
            missing, cpu = signals.get("missing_bytes_per_token"), signals.get("cpu_ratio")
            best = (*others, Best(busy, lasting, token, missing, cpu))[-MAX_BESTS:]
        elif known.cpu_ratio is None and lasting >= _ALIKE * known.tokens_per_second:
            best = (*others, msgspec.structs.replace(known, cpu_ratio=signals.get("cpu_ratio")))
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
    stepped = _become(axis, Paging.THRASHING, signals, calm_seconds=0.0)
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
    reasons = [_reason(cost.signal, cost.value, cost.limit, held, cost.text) for cost in costs]
    return (*reasons, _refault_reason(axis, signals))


def _refault_reason(axis: PagingAxis, signals: Signals) -> Reason:
    refaults, read = signals.get("refault_bytes_per_second"), signals.get("process_read_bytes_per_second")
    # Pages of reads that are under way are counted as refaults before they are counted as read.
    again = refaults if refaults is None or read is None else min(refaults, read)
    text = f"refaults {format_rate(again)} of {format_rate(read)} read for {format_duration(axis.churn_seconds)}"
    return _reason("refault_ratio", signals.get("refault_ratio"), None, axis.churn_seconds, text)


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
    reason = _calm_reason(axis, signals, evidence, paging)
    lasted = format_duration(signals.at_seconds - (axis.since or signals.at_seconds))
    message = f"the thrash is over after {lasted}: {reason.text}"
    stepped = _become(axis, paging, signals, strong_seconds=0.0, weak_seconds=0.0, blind_seconds=0.0)
    return PagingStep(stepped, (reason,), ((EventName.THRASH_END, message),))


def _works(signals: Signals, best: Best | None, settings: DetectorSettings) -> bool:
    """Whether it generates, and not far below its best."""
    speed = signals.get("tokens_per_second")
    return bool(speed) and (best is None or speed >= settings.slow_ratio * best.tokens_per_second)


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
        *(_reason(cost.signal, cost.value, cost.limit, axis.strong_seconds, cost.text) for cost in evidence.costs),
        _calm_reason(axis, signals, evidence, paging),
    )
    return PagingStep(_become(axis, paging, signals), reasons)


def _calm_reason(axis: PagingAxis, signals: Signals, evidence: Evidence, paging: Paging) -> Reason:
    if paging is Paging.STREAMING:
        token, missing = signals.get("bytes_per_token"), signals.get("missing_bytes_per_token")
        if token is not None and missing is not None:
            text = (
                f"{format_bytes(token)} read a token, {format_bytes(missing)} forecast for the experts that are missing"
            )
            return _reason("bytes_per_token", token, missing, axis.churn_seconds, text)
        return _refault_reason(axis, signals)
    read, fill = signals.get("process_read_bytes_per_second"), signals.get("cache_fill_ratio")
    if paging is Paging.WARMING and evidence.doing is Doing.CHURNING:
        return _refault_reason(axis, signals)
    if paging is Paging.WARMING:
        text = f"{format_rate(read)} read"
        text += "" if fill is None else f", {format_ratio(max(0.0, min(1.0, fill)))} of it fills the page cache"
        return _reason("cache_fill_ratio", fill, None, None, text)
    return _reason("process_read_bytes_per_second", read, None, axis.quiet_seconds, f"{format_rate(read)} read")


def _become(axis: PagingAxis, paging: Paging, signals: Signals, **changes: float) -> PagingAxis:
    since = axis.since if paging is axis.paging and axis.since is not None else signals.at_seconds
    return msgspec.structs.replace(axis, paging=paging, since=since, **changes)


def _reason(signal: str, value: float | None, limit: float | None, held: float | None, text: str) -> Reason:
    return Reason(axis="paging", signal=signal, value=value, limit=limit, held_seconds=held, text=text)


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
        return _idle_checks(axis, signals, sample, facts, settings)
    best = best_of(axis, signals)
    costs = cost_checks(signals, phase, facts, settings, best=best, paging=axis.paging)
    if _is_starved(axis, settings):
        costs = tuple(cost if cost.signal == _SWAPPING else _for_nothing(cost) for cost in costs)
    quiet, little, filling, again = doing_checks(signals, facts, settings)
    steady = settings.steady_hold_seconds
    return (
        _held(quiet, axis.quiet_seconds, steady, "steady"),
        _held(little, axis.quiet_seconds, steady, "steady"),
        _held(filling, 0.0, 0.0, "warming"),
        _held(again, axis.churn_seconds, settings.streaming_hold_seconds, "streaming"),
        cheap_check(signals, facts, settings, axis.paging),
        *(_held(cost, *hold(axis, cost, settings), "thrashing") for cost in costs),
    )


def _for_nothing(cost: Check) -> Check:
    aside = "it waits for the processor, so its reads cost it nothing"
    return msgspec.structs.replace(cost, beyond=False, aside=aside) if cost.beyond else cost


def best_of(axis: PagingAxis, signals: Signals) -> Best | None:
    """The warm best with as many slots busy as now."""
    busy = round(signals.get("busy_slots") or 0.0)
    return next((one for one in axis.best if one.busy_slots == busy), None)


def _held(check: Check, held: float, needed: float, would: str) -> Check:
    return msgspec.structs.replace(
        check, held_seconds=held if check.beyond else 0.0, needed_seconds=needed, would=would
    )


def _idle_checks(
    axis: PagingAxis, signals: Signals, sample: BackendSample, facts: BackendFacts, settings: DetectorSettings
) -> tuple[Check, ...]:
    mapped = None if sample.process is None else sample.process.rss_file_bytes
    evicted = _held(
        _evicted(axis, mapped, facts, settings), axis.evicted_seconds, settings.evicted_hold_seconds, "cold"
    )
    if evicted.value is None:
        unknown = "neither its mapped memory nor a scan of its residency was seen twice while it is idle"
        evicted = msgspec.structs.replace(evicted, unknown=unknown)
    return (evicted, _full(axis, signals, mapped, facts, settings))
