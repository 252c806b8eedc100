"""Why the verdict is what it is now: the detector's own checks with values, limits and hold times, and what would change it.

Made when somebody asks, from what the last tick left behind; the rules themselves are the detector's, there is no second copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.decide.check_text import amount, check_text, label, rule_text
from moetuned.decide.detector import DetectorState
from moetuned.decide.detector_hung import hung_check
from moetuned.decide.detector_memory import memory_checks
from moetuned.decide.detector_paging import PagingAxis, paging_checks
from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.signal_sources import Sight, why_unknown
from moetuned.schema.explanation import AxisExplanation, Explanation, UnknownSignal
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_duration
from moetuned.schema.verdict import Check, MemoryState, Paging, Phase, Verdict

_NOW_SECONDS = 0.1
"""What is left of a hold time is over."""
_SWAPPING = "own_swap_in_bytes_per_second"
_WHY_SHUT = {
    ("process_read_bytes_per_second", "steady"): "hardly anything is read",
    ("bytes_per_token", "steady"): "a token costs next to nothing to read",
    ("cache_fill_ratio", "warming"): "what is read fills the page cache",
    ("refault_ratio", "streaming"): "hardly anything is read a second time",
    ("bytes_per_token", "no thrash, whatever else is beyond"): "a token costs little to read",
}
"""Why no cost counts, by the rule that says so."""


def explain(
    state: DetectorState, verdict: Verdict, signals: Signals, sight: Sight, settings: DetectorSettings
) -> Explanation:
    """What led to `verdict`: the state after its tick, and that tick's signals."""
    sight = msgspec.structs.replace(sight, values=signals.values)
    phase = (hung_check(state.phase.stillness, sight.sample, settings),)
    paging = paging_checks(state.paging, signals, sight.sample, verdict.phase, sight.facts, settings)
    memory = memory_checks(state.memory, signals, settings, verdict.phase)
    counting = _set_aside(paging)
    axes = (
        ("phase", verdict.phase.value, verdict.phase_since, phase, _phase_changes(state, verdict, settings)),
        (
            "paging",
            verdict.paging.value,
            verdict.paging_since,
            counting,
            _paging_changes(state.paging, verdict.phase, paging, settings),
        ),
        ("memory", verdict.memory.value, verdict.memory_since, memory, _memory_changes(verdict.memory, memory)),
    )
    return Explanation(
        verdict.backend,
        verdict.at_seconds,
        tuple(
            AxisExplanation(
                axis,
                value,
                None if since is None else max(0.0, verdict.at_seconds - since),
                tuple(reason.text for reason in verdict.reasons if reason.axis == axis),
                tuple(_told(check, sight) for check in checks),
                changes,
            )
            for axis, value, since, checks, changes in axes
        ),
        tuple(UnknownSignal(name, why_unknown(name, sight)) for name, value in signals.values.items() if value is None),
    )


def _told(check: Check, sight: Sight) -> Check:
    """With its text, and with why it is unknown."""
    if check.beyond is None and check.aside is None and check.unknown is None:
        unknown = why_unknown(check.signal, sight) if check.value is None else _missing_part(check, sight)
        check = msgspec.structs.replace(check, unknown=unknown)
    return msgspec.structs.replace(check, text=check_text(check), rule=rule_text(check))


def _missing_part(check: Check, sight: Sight) -> str:
    """The signal is known and yet nothing can be told: what belongs to the rule besides."""
    if check.signal == "cache_lost_ratio":
        return "the size of its model is unknown"
    if sight.facts.layout is None:
        return "layout unknown"
    if check.signal == "bytes_per_major_fault":
        return "the size of an expert's slice is unknown"
    needed = ("tokens_per_second", "process_read_bytes_per_second") if check.signal == "tokens_per_second" else ()
    name = next((one for one in needed if sight.values.get(one, 0.0) is None), "bytes_per_token")
    return f"{label(name)} is unknown: {why_unknown(name, sight)}"


def _set_aside(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Costs count only while the reads are a churn that is not cheap (`paging_evidence.weigh`): what stands against that now."""
    shut = _shut(checks) if any(check.would == "thrashing" for check in checks) else ()
    if not shut:
        return checks
    why = _WHY_SHUT[shut[0].signal, shut[0].would] if shut[0].beyond is not None else _not_told(shut[0])
    return tuple(
        msgspec.structs.replace(check, aside=why)
        if check.would == "thrashing" and check.beyond and check.signal != _SWAPPING
        else check
        for check in checks
    )


def _not_told(check: Check) -> str:
    return f"{label(check.signal)} is unknown"


# --- what would change it ---


def _phase_changes(state: DetectorState, verdict: Verdict, settings: DetectorSettings) -> tuple[str, ...]:
    if state.phase.stillness.hung:
        return ("no longer hung as soon as a token, a read, processor time or a wait for a disk is seen",)
    if verdict.phase is Phase.ABSENT:
        return ("another phase once its process runs",)
    limit = format_duration(settings.hung_hold_seconds)
    return (f"hung once no token, read, processor time or disk wait is seen for {limit} while it has a request",)


def _paging_changes(
    axis: PagingAxis, phase: Phase, checks: Sequence[Check], settings: DetectorSettings
) -> tuple[str, ...]:
    if not checks:
        return ("told again once it works on a request",)
    if phase is Phase.IDLE:
        idle = tuple(
            _would(check)
            for check in checks
            if not check.beyond and check.value is not None and check.would != axis.paging.value
        )
        if axis.paging is Paging.THRASHING:
            left = max(0.0, settings.idle_release_seconds - axis.idle_seconds)
            return (f"no longer thrashing after {format_duration(left)} more without a request", *idle)
        return idle
    if axis.paging is Paging.THRASHING:
        return _thrash_ends(axis, checks, settings)
    return _thrash_begins(checks)


def _thrash_begins(checks: Sequence[Check]) -> tuple[str, ...]:
    """What would make it a thrash. A cost counts only while the reads are a churn that is not cheap, swapping always."""
    thrash = [check for check in checks if check.would == "thrashing" and check.aside is None]
    gates = _gates(checks)
    beyond = [check for check in thrash if check.beyond and (gates or _left(check) > _NOW_SECONDS)]
    within = [check for check in thrash if check.beyond is False and check.limit is not None]
    told = [(check, _soon(check) if check.beyond else _would(check)) for check in beyond or within]
    free = tuple(text for check, text in told if check.signal == _SWAPPING)
    gated = tuple(text for check, text in told if check.signal != _SWAPPING)
    if gates and gated:
        gated = (f"thrashing only while {' and '.join(gates)}, and then:", *gated)
    return (*free, *gated)


def _gates(checks: Sequence[Check]) -> tuple[str, ...]:
    """What must be otherwise before any cost counts; empty when all of it is so."""
    return tuple(
        _passes(check if check.would == "streaming" else msgspec.structs.replace(check, above=not check.above))
        for check in _shut(checks)
    )


def _shut(checks: Sequence[Check]) -> tuple[Check, ...]:
    """The rules that let no cost count now, as `paging_evidence.weigh` asks for them."""
    shut: dict[str, Check] = {}
    for check in checks:
        match check.would:
            case "steady" if check.signal == "process_read_bytes_per_second":
                closed = check.beyond is not False
            case "streaming":
                closed = check.beyond is not True
            case "thrashing":
                closed = False
            case _:
                closed = check.beyond is True
        before = shut.get(check.signal)
        # Two rules ask for the same signal: who passes the higher limit passes both.
        if closed and (before is None or (check.limit or 0.0) > (before.limit or 0.0)):
            shut[check.signal] = check
    return tuple(shut.values())


def _thrash_ends(axis: PagingAxis, checks: Sequence[Check], settings: DetectorSettings) -> tuple[str, ...]:
    held = [check for check in checks if check.would == "thrashing" and check.beyond]
    needed = format_duration(settings.thrash_release_seconds)
    if not held:
        return (f"over after {needed} without a cost beyond its limit; so far {format_duration(axis.calm_seconds)}",)
    back = " and ".join(_comes_back(check) for check in held)
    return (f"over once {back}, for {needed} (streaming: {format_duration(settings.streaming_hold_seconds)})",)


def _memory_changes(memory: MemoryState, checks: Sequence[Check]) -> tuple[str, ...]:
    return tuple(
        _soon(check) if check.beyond else _would(check)
        for check in checks
        if check.would != memory.value
        and check.limit is not None
        and not (memory is MemoryState.CRITICAL and check.would == "near_limit")
    )


def _left(check: Check) -> float:
    return (check.needed_seconds or 0.0) - (check.held_seconds or 0.0)


def _soon(check: Check) -> str:
    left = _left(check)
    what = f"{label(check.signal)} stays {_side(check)} {amount(check.signal, check.limit)}"
    return (
        f"{check.would} in {format_duration(left)} if {what}"
        if left > _NOW_SECONDS
        else f"{check.would} as long as {what}"
    )


def _would(check: Check) -> str:
    needed = f" for {format_duration(check.needed_seconds)}" if check.needed_seconds else ""
    return f"{check.would} once {_passes(check)}{needed}"


def _passes(check: Check) -> str:
    now = "" if check.value is None else f" (now {amount(check.signal, check.value)})"
    return f"{label(check.signal)} is {_side(check)} {amount(check.signal, check.limit)}{now}"


def _comes_back(check: Check) -> str:
    side = "no longer above" if check.above else "no longer below"
    return f"{label(check.signal)} is {side} {amount(check.signal, check.limit)}"


def _side(check: Check) -> str:
    return "above" if check.above else "below"
