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
from moetuned.schema.model import ModelLayout
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_bytes, format_ratio
from moetuned.schema.verdict import Paging, Phase


class Doing(StrEnum):
    """What the reads of a tick are."""

    UNKNOWN = "unknown"
    QUIET = "quiet"
    FILLING = "filling"
    CHURNING = "churning"


class Cost(msgspec.Struct, frozen=True):
    """A sign that churning costs too much. `weak` signs must last longer, `blind` ones (no tokens known) longest."""

    signal: str
    value: float
    limit: float
    text: str
    weak: bool = False
    blind: bool = False


class Best(msgspec.Struct, frozen=True):
    """The fastest that was seen while so many slots were busy, and what a token cost to read then."""

    busy_slots: int
    tokens_per_second: float
    bytes_per_token: float
    missing_bytes_per_token: float | None = None


class Evidence(msgspec.Struct, frozen=True):
    """One tick. `costs` is empty unless it churns."""

    doing: Doing
    costs: tuple[Cost, ...] = ()


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
    if doing is not Doing.CHURNING:
        return Evidence(doing)
    ease = settings.release_factor if paging is Paging.THRASHING else 1.0
    if _cheap(signals, facts, settings.cheap_token_ratio * ease):
        return Evidence(doing)
    found = (
        *_squeeze(signals, facts, settings, ease, streaming=paging is Paging.STREAMING),
        *_token_cost(signals, phase, facts, settings, ease),
        *_slow(signals, phase, facts, settings, best, ease),
        *_blind(signals, phase, facts, settings, ease),
    )
    return Evidence(doing, found)


def _doing(signals: Signals, facts: BackendFacts, settings: DetectorSettings) -> Doing:
    read = signals.get("process_read_bytes_per_second")
    if read is None:
        return Doing.UNKNOWN
    if read < settings.quiet_read_bytes_per_second:
        return Doing.QUIET
    if _cheap(signals, facts, settings.quiet_token_ratio):
        return Doing.QUIET
    fill, refault = signals.get("cache_fill_ratio"), signals.get("refault_ratio")
    if fill is not None and fill >= settings.filling_ratio:
        return Doing.FILLING
    if refault is None:
        return Doing.UNKNOWN
    return Doing.CHURNING if refault >= settings.churn_refault_ratio else Doing.FILLING


def _cheap(signals: Signals, facts: BackendFacts, ratio: float) -> bool:
    """Whether by every figure there is a token costs less than this share of its active experts to read."""
    active = 0 if facts.layout is None else facts.layout.active_expert_bytes
    figures = (signals.get("bytes_per_token"), signals.get("bytes_per_decode_call"), bytes_a_token(signals))
    known = [figure for figure in figures if figure is not None]
    return bool(known) and max(known) < ratio * active


def _squeeze(
    signals: Signals, facts: BackendFacts, settings: DetectorSettings, ease: float, *, streaming: bool
) -> tuple[Cost, ...]:
    lost, change = signals.get("cache_lost_ratio"), signals.get("cache_bytes_per_second")
    size = facts.model_bytes
    if lost is None or not size:
        return ()
    limit = settings.squeezed_ratio * ease
    if change is not None and change < -settings.squeezing_ratio_per_second * size and not streaming:
        limit = min(limit, settings.squeezing_ratio)
    if lost < limit:
        return ()
    text = f"its page cache shrank by {format_ratio(lost)} of the model (limit {format_ratio(limit)})"
    return (Cost("cache_lost_ratio", lost, limit, text),)


def _token_cost(
    signals: Signals, phase: Phase, facts: BackendFacts, settings: DetectorSettings, ease: float
) -> tuple[Cost, ...]:
    token, layout = signals.get("bytes_per_token"), facts.layout
    if token is None or layout is None or phase is Phase.PREFILL:
        return ()
    costs: list[Cost] = []
    limit = settings.costly_active_ratio * ease * (layout.active_expert_bytes or layout.other_bytes)
    if token > limit:
        text = (
            f"{format_bytes(token)} read a token, more than with no expert cached at all "
            f"({format_bytes(layout.active_expert_bytes)}; limit {format_bytes(limit)})"
        )
        costs.append(Cost("bytes_per_token", token, limit, text))
    costs.extend(_amplified(signals, layout, settings, ease))
    other, limit = signals.get("other_resident_ratio"), settings.costly_other_resident_ratio
    if other is not None and other < limit:
        text = f"only {format_ratio(other)} of what every token needs is resident (limit {format_ratio(limit)})"
        costs.append(Cost("other_resident_ratio", other, limit, text))
    return tuple(costs)


def _amplified(signals: Signals, layout: ModelLayout, settings: DetectorSettings, ease: float) -> tuple[Cost, ...]:
    """Misses that fetch too much. A smaller excess is a sure sign where the windows read are larger than what was missing."""
    amplification, window = signals.get("read_amplification"), signals.get("bytes_per_major_fault")
    token = signals.get("bytes_per_token")
    if amplification is None or token is None:
        return ()
    wide = window is not None and window >= ease * _excess_window_bytes(layout, settings)
    limit = ease * (settings.wide_amplification if wide else settings.costly_amplification)
    share = settings.wide_active_ratio if wide else settings.amplified_active_ratio
    if amplification <= limit or token <= ease * share * layout.active_expert_bytes:
        return ()
    text = f"{amplification:.1f} times the bytes of the missing experts are read (limit {limit:.1f})"
    if wide:
        text += f", {format_bytes(window)} a major fault for slices of {format_bytes(layout.expert_slice_bytes)}"
    return (Cost("read_amplification", amplification, limit, text, weak=not wide),)


def _excess_window_bytes(layout: ModelLayout, settings: DetectorSettings) -> float:
    return max(settings.excess_window_ratio * layout.expert_slice_bytes, settings.excess_window_bytes)


def _slow(
    signals: Signals,
    phase: Phase,
    facts: BackendFacts,
    settings: DetectorSettings,
    best: Best | None,
    ease: float,
) -> tuple[Cost, ...]:
    """Far below its own warm best, because a token costs more to read than it did then, because less is resident.

    A busy processor or disk makes it slow at the same cost; another topic makes a token dearer with as much resident. Where
    nobody knows how much is resident the sign must last as long as other blind ones.
    """
    speed, token = signals.get("tokens_per_second"), bytes_a_token(signals)
    if speed is None or token is None or best is None or phase is not Phase.DECODE:
        return ()
    limit = settings.slow_ratio / ease * best.tokens_per_second
    if speed >= limit or token <= settings.dearer_ratio * ease * best.bytes_per_token:
        return ()
    missing, layout = signals.get("missing_bytes_per_token"), facts.layout
    blind = missing is None or layout is None or best.missing_bytes_per_token is None
    if missing is not None and layout is not None and best.missing_bytes_per_token is not None:
        more = missing - best.missing_bytes_per_token
        if more < settings.less_resident_ratio * ease * layout.active_expert_bytes:
            return ()
    text = (
        f"{speed:.1f} tokens/s at {format_bytes(token)} read a token; its own warm best is {best.tokens_per_second:.1f} "
        f"at {format_bytes(best.bytes_per_token)} (limit {limit:.1f})"
    )
    return (Cost("tokens_per_second", speed, limit, text, weak=not blind, blind=blind),)


def bytes_a_token(signals: Signals) -> float | None:
    """`bytes_per_token`; where requests are too short for it, what is read a second over the tokens a second."""
    token = signals.get("bytes_per_token")
    if token is not None:
        return token
    speed, read = signals.get("tokens_per_second"), signals.get("process_read_bytes_per_second")
    return read / speed if speed and read is not None else None


def _blind(
    signals: Signals, phase: Phase, facts: BackendFacts, settings: DetectorSettings, ease: float
) -> tuple[Cost, ...]:
    """Without an answer of what it does: each fault fetches many times the slice that was missing."""
    window, layout = signals.get("bytes_per_major_fault"), facts.layout
    if phase is not Phase.UNKNOWN or window is None or layout is None or signals.get("bytes_per_token") is not None:
        return ()
    limit = ease * _excess_window_bytes(layout, settings)
    if window <= limit or not layout.expert_slice_bytes:
        return ()
    text = (
        f"{format_bytes(window)} read a major fault for an expert's slice of "
        f"{format_bytes(layout.expert_slice_bytes)} (limit {format_bytes(limit)})"
    )
    return (Cost("bytes_per_major_fault", window, limit, text, blind=True),)
