"""What one tick says about paging: quiet, filling the cache, churning through it, and whether churning costs too much.

Rules and where they come from: refaults alone are not thrashing (a model that streams its experts refaults for ever, at the
cost its layout forecasts); reads that make the cache grow are a cache being filled; a prompt's micro-batch touches nearly all
experts, so its reads say nothing about the cost of a token.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.paging_swap import swap_check
from moetuned.schema.model import ModelLayout
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_bytes, format_ratio
from moetuned.schema.verdict import Check, Paging, Phase


class Doing(StrEnum):
    """What the reads of a tick are."""

    UNKNOWN = "unknown"
    QUIET = "quiet"
    FILLING = "filling"
    CHURNING = "churning"


class Best(msgspec.Struct, frozen=True):
    """The fastest that was seen while so many slots were busy, and what a token cost to read then."""

    busy_slots: int
    tokens_per_second: float
    bytes_per_token: float
    missing_bytes_per_token: float | None = None


class Evidence(msgspec.Struct, frozen=True):
    """One tick. `costs`: the signs that churning costs too much, each beyond its limit; empty unless it churns."""

    doing: Doing
    costs: tuple[Check, ...] = ()


def weigh(
    signals: Signals,
    phase: Phase,
    facts: BackendFacts,
    settings: DetectorSettings,
    *,
    best: Best | None,
    paging: Paging,
) -> Evidence:
    """Evidence of this tick. While it thrashes, limits are eased by `release_factor`, so that a thrash does not flicker."""
    doing = _doing(signals, facts, settings)
    swap = swap_check(signals, phase, settings, _ease(settings, paging))
    if swap.beyond:
        return Evidence(Doing.CHURNING, (swap,))
    if doing is not Doing.CHURNING:
        return Evidence(doing)
    if _cheap(signals, facts, settings.cheap_token_ratio * _ease(settings, paging)):
        return Evidence(doing)
    checks = cost_checks(signals, phase, facts, settings, best=best, paging=paging)
    return Evidence(doing, tuple(check for check in checks if check.beyond))


def cost_checks(
    signals: Signals,
    phase: Phase,
    facts: BackendFacts,
    settings: DetectorSettings,
    *,
    best: Best | None,
    paging: Paging,
) -> tuple[Check, ...]:
    """Every sign that churning may cost too much, as it stands. A tick asks only while it churns, `explain` at any time.

    Those that are beyond their limit are the costs of `weigh`, in this order.
    """
    ease = _ease(settings, paging)
    return (
        _squeeze(signals, facts, settings, ease, streaming=paging is Paging.STREAMING),
        *_token_cost(signals, phase, facts, settings, ease),
        _slow(signals, phase, facts, settings, best, ease),
        _blind(signals, phase, facts, settings, ease),
        swap_check(signals, phase, settings, ease),
    )


def cost_untold(
    signals: Signals, phase: Phase, facts: BackendFacts, settings: DetectorSettings, paging: Paging
) -> bool:
    """Whether it works, and nobody knows whether a token costs too much: it reads a prompt, or a request's first token.

    A thrash is told to be over by decode calls, too, that cost so little on average that no token among them can be too dear.
    """
    if phase not in (Phase.PREFILL, Phase.DECODE) or signals.get("bytes_per_token") is not None:
        return False
    call = signals.get("bytes_per_decode_call") if paging is Paging.THRASHING else None
    return call is None or call >= settings.release_factor * settings.wide_active_ratio * _active_bytes(facts)


def doing_checks(signals: Signals, facts: BackendFacts, settings: DetectorSettings) -> tuple[Check, ...]:
    """What the reads of this tick are told from, in the order in which it is asked: the first that is beyond decides."""
    return (
        _quiet(signals, settings),
        _cheap_check(signals, facts, settings.quiet_token_ratio, "its reads are nothing"),
        _filling(signals, settings),
        _again(signals, settings),
    )


def cheap_check(signals: Signals, facts: BackendFacts, settings: DetectorSettings, paging: Paging) -> Check:
    """Whether a token costs so little to read that nothing of it is a thrash."""
    ratio = settings.cheap_token_ratio * _ease(settings, paging)
    return _cheap_check(signals, facts, ratio, "no thrash, whatever else is beyond")


def _ease(settings: DetectorSettings, paging: Paging) -> float:
    return settings.release_factor if paging is Paging.THRASHING else 1.0


def _doing(signals: Signals, facts: BackendFacts, settings: DetectorSettings) -> Doing:
    quiet = _reads_little(signals, settings)
    if quiet is None:
        return Doing.UNKNOWN
    if quiet or _cheap(signals, facts, settings.quiet_token_ratio):
        return Doing.QUIET
    if _fills(signals, settings):
        return Doing.FILLING
    again = _reads_again(signals, settings)
    if again is None:
        return Doing.UNKNOWN
    return Doing.CHURNING if again else Doing.FILLING


def _reads_little(signals: Signals, settings: DetectorSettings) -> bool | None:
    read = signals.get("process_read_bytes_per_second")
    return None if read is None else read < settings.quiet_read_bytes_per_second


def _fills(signals: Signals, settings: DetectorSettings) -> bool | None:
    fill = signals.get("cache_fill_ratio")
    return None if fill is None else fill >= settings.filling_ratio


def _reads_again(signals: Signals, settings: DetectorSettings) -> bool | None:
    refault = signals.get("refault_ratio")
    return None if refault is None else refault >= settings.churn_refault_ratio


def _check(
    signal: str, value: float | None, limit: float | None, *, above: bool = True, beyond: bool | None, would: str
) -> Check:
    return Check(signal, value, limit, above=above, beyond=beyond, would=would)


def _quiet(signals: Signals, settings: DetectorSettings) -> Check:
    read, limit = signals.get("process_read_bytes_per_second"), settings.quiet_read_bytes_per_second
    beyond = _reads_little(signals, settings)
    return _check(
        "process_read_bytes_per_second", read, limit, above=False, beyond=beyond, would="its reads are nothing"
    )


def _filling(signals: Signals, settings: DetectorSettings) -> Check:
    fill, limit = signals.get("cache_fill_ratio"), settings.filling_ratio
    beyond = _fills(signals, settings)
    return _check("cache_fill_ratio", fill, limit, beyond=beyond, would="it fills the page cache")


def _again(signals: Signals, settings: DetectorSettings) -> Check:
    refault, limit = signals.get("refault_ratio"), settings.churn_refault_ratio
    beyond = _reads_again(signals, settings)
    return _check("refault_ratio", refault, limit, beyond=beyond, would="it reads again what was in memory before")


def _cheap(signals: Signals, facts: BackendFacts, ratio: float) -> bool:
    """Whether by every figure there is a token costs less than this share of its active experts to read."""
    dearest = _dearest(signals)
    return dearest is not None and dearest < ratio * _active_bytes(facts)


def _cheap_check(signals: Signals, facts: BackendFacts, ratio: float, would: str) -> Check:
    dearest, limit = _dearest(signals), ratio * _active_bytes(facts)
    known = dearest is not None and facts.layout is not None
    beyond = _cheap(signals, facts, ratio) if known else None
    return _check("bytes_per_token", dearest, limit if facts.layout else None, above=False, beyond=beyond, would=would)


def _dearest(signals: Signals) -> float | None:
    """The largest of the figures of what a token costs to read."""
    figures = (signals.get("bytes_per_token"), signals.get("bytes_per_decode_call"), bytes_a_token(signals))
    return max((figure for figure in figures if figure is not None), default=None)


def _active_bytes(facts: BackendFacts) -> int:
    return 0 if facts.layout is None else facts.layout.active_expert_bytes


def _squeeze(
    signals: Signals, facts: BackendFacts, settings: DetectorSettings, ease: float, *, streaming: bool
) -> Check:
    lost, change = signals.get("cache_lost_ratio"), signals.get("cache_bytes_per_second")
    size, limit = facts.model_bytes, settings.squeezed_ratio * ease
    if lost is None or not size:
        return Check("cache_lost_ratio", lost, limit)
    shrinks = change is not None and change < -settings.squeezing_ratio_per_second * size
    if shrinks and not streaming and not _cheap(signals, facts, settings.squeezing_token_ratio * ease):
        limit = min(limit, settings.squeezing_ratio)
    if lost < limit:
        return Check("cache_lost_ratio", lost, limit, beyond=False)
    text = f"its page cache shrank by {format_ratio(lost)} of the model (limit {format_ratio(limit)})"
    return Check("cache_lost_ratio", lost, limit, text, beyond=True)


_NOT_IN_A_PROMPT = "a prompt touches nearly all experts, so its reads say nothing about the cost of a token"


def _token_cost(
    signals: Signals, phase: Phase, facts: BackendFacts, settings: DetectorSettings, ease: float
) -> tuple[Check, ...]:
    token, layout = signals.get("bytes_per_token"), facts.layout
    if token is None or layout is None or phase is Phase.PREFILL:
        aside = _NOT_IN_A_PROMPT if phase is Phase.PREFILL else None
        return (
            Check("bytes_per_token", token, aside=aside),
            Check("read_amplification", signals.get("read_amplification"), aside=aside),
            Check("other_resident_ratio", signals.get("other_resident_ratio"), above=False, aside=aside),
        )
    limit = settings.costly_active_ratio * ease * (layout.active_expert_bytes or layout.other_bytes)
    text = (
        f"{format_bytes(token)} read a token, more than with no expert cached at all "
        f"({format_bytes(layout.active_expert_bytes)}; limit {format_bytes(limit)})"
        if token > limit
        else ""
    )
    return (
        Check("bytes_per_token", token, limit, text, beyond=token > limit),
        _amplified(signals, layout, settings, ease),
        _rest_missing(signals, settings),
    )


def _rest_missing(signals: Signals, settings: DetectorSettings) -> Check:
    other, limit = signals.get("other_resident_ratio"), settings.costly_other_resident_ratio
    if other is None or other >= limit:
        return Check("other_resident_ratio", other, limit, above=False, beyond=None if other is None else False)
    text = f"only {format_ratio(other)} of what every token needs is resident (limit {format_ratio(limit)})"
    return Check("other_resident_ratio", other, limit, text, above=False, beyond=True)


def _amplified(signals: Signals, layout: ModelLayout, settings: DetectorSettings, ease: float) -> Check:
    """Misses that fetch too much. A smaller excess is enough where the windows read are larger than what was missing."""
    amplification, window = signals.get("read_amplification"), signals.get("bytes_per_major_fault")
    token = signals.get("bytes_per_token")
    wide = window is not None and window >= ease * _excess_window_bytes(layout, settings)
    limit = ease * (settings.wide_amplification if wide else settings.costly_amplification)
    share = settings.wide_active_ratio if wide else settings.amplified_active_ratio
    if amplification is None or token is None:
        return Check("read_amplification", amplification, limit)
    least = ease * share * layout.active_expert_bytes
    if amplification <= limit or token <= least:
        little = amplification > limit
        aside = f"a token costs less than {format_bytes(least)} to read, so little is missing" if little else None
        return Check("read_amplification", amplification, limit, beyond=False, aside=aside)
    text = f"{amplification:.1f} times the bytes of the missing experts are read (limit {limit:.1f})"
    if wide:
        text += f", {format_bytes(window)} a major fault for slices of {format_bytes(layout.expert_slice_bytes)}"
    return Check("read_amplification", amplification, limit, text, beyond=True)


def _excess_window_bytes(layout: ModelLayout, settings: DetectorSettings) -> float:
    return max(settings.excess_window_ratio * layout.expert_slice_bytes, settings.excess_window_bytes)


def _slow(
    signals: Signals,
    phase: Phase,
    facts: BackendFacts,
    settings: DetectorSettings,
    best: Best | None,
    ease: float,
) -> Check:
    """Far below its own warm best, because a token costs more to read than it did then, because less is resident.

    A busy processor or disk makes it slow at the same cost; another topic makes a token dearer with as much resident. Where
    nobody knows how much is resident the sign must last as long as other blind ones.
    """
    speed, token = signals.get("tokens_per_second"), bytes_a_token(signals)
    limit = None if best is None else settings.slow_ratio / ease * best.tokens_per_second
    if speed is None or token is None or best is None or limit is None or phase is not Phase.DECODE:
        aside = None if phase is Phase.DECODE else "it does not generate"
        unknown = "no warm best is known yet for as many busy slots" if best is None and aside is None else None
        return Check("tokens_per_second", speed, limit, above=False, aside=aside, unknown=unknown)
    missing, layout = signals.get("missing_bytes_per_token"), facts.layout
    blind = missing is None or layout is None or best.missing_bytes_per_token is None
    aside = _slow_for_another_reason(signals, facts, settings, best, token, ease) if speed < limit else None
    if speed >= limit or aside is not None:
        return Check(
            "tokens_per_second", speed, limit, above=False, weak=not blind, blind=blind, beyond=False, aside=aside
        )
    text = (
        f"{speed:.1f} tokens/s at {format_bytes(token)} read a token; its own warm best is {best.tokens_per_second:.1f} "
        f"at {format_bytes(best.bytes_per_token)} (limit {limit:.1f})"
    )
    return Check("tokens_per_second", speed, limit, text, above=False, weak=not blind, blind=blind, beyond=True)


def _slow_for_another_reason(
    signals: Signals, facts: BackendFacts, settings: DetectorSettings, best: Best, token: float, ease: float
) -> str | None:
    """Why slowness is no sign of a thrash; None when it is one."""
    if token <= settings.dearer_ratio * ease * best.bytes_per_token:
        return "a token costs hardly more to read than when it was fast"
    missing, layout = signals.get("missing_bytes_per_token"), facts.layout
    if missing is None or layout is None or best.missing_bytes_per_token is None:
        return None
    more = missing - best.missing_bytes_per_token
    if more < settings.less_resident_ratio * ease * layout.active_expert_bytes:
        return "as much of the experts is resident as when it was fast"
    return None


def bytes_a_token(signals: Signals) -> float | None:
    """`bytes_per_token`; where requests are too short for it, what is read a second over the tokens a second."""
    token = signals.get("bytes_per_token")
    if token is not None:
        return token
    speed, read = signals.get("tokens_per_second"), signals.get("process_read_bytes_per_second")
    return read / speed if speed and read is not None else None


def _blind(signals: Signals, phase: Phase, facts: BackendFacts, settings: DetectorSettings, ease: float) -> Check:
    """Without an answer of what it does: each fault fetches many times the slice that was missing."""
    window, layout = signals.get("bytes_per_major_fault"), facts.layout
    limit = None if layout is None else ease * _excess_window_bytes(layout, settings)
    if phase is not Phase.UNKNOWN or signals.get("bytes_per_token") is not None:
        aside = "what it does and what a token costs is known; this counts only where it is not"
        return Check("bytes_per_major_fault", window, limit, blind=True, aside=aside)
    if window is None or layout is None or limit is None or not layout.expert_slice_bytes:
        return Check("bytes_per_major_fault", window, limit, blind=True)
    if window <= limit:
        return Check("bytes_per_major_fault", window, limit, blind=True, beyond=False)
    text = (
        f"{format_bytes(window)} read a major fault for an expert's slice of "
        f"{format_bytes(layout.expert_slice_bytes)} (limit {format_bytes(limit)})"
    )
    return Check("bytes_per_major_fault", window, limit, text, blind=True, beyond=True)
