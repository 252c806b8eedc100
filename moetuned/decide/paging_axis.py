"""What the paging axis remembers between ticks, and the small steps that its parts share."""

from __future__ import annotations

import msgspec

from moetuned.decide.paging_evidence import Best
from moetuned.schema.event import EventName
from moetuned.schema.signals import Signals
from moetuned.schema.verdict import Check, Paging, Reason

MAX_STEP_SECONDS = 5.0


class PagingAxis(msgspec.Struct, frozen=True):
    """What is remembered. `*_seconds`: how long the evidence has lasted; `best`: by busy slots; `scan_mapped_bytes`: what the process
    had mapped when `resident_bytes` were found.
    """

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


def become(axis: PagingAxis, paging: Paging, signals: Signals, **changes: float) -> PagingAxis:
    """With another verdict, since now where it is another, and what else changes."""
    since = axis.since if paging is axis.paging and axis.since is not None else signals.at_seconds
    return msgspec.structs.replace(axis, paging=paging, since=since, **changes)


def reason(signal: str, value: float | None, limit: float | None, held: float | None, text: str) -> Reason:
    """A reason of this axis."""
    return Reason(axis="paging", signal=signal, value=value, limit=limit, held_seconds=held, text=text)


def held(check: Check, held: float, needed: float, would: str) -> Check:
    """For people: how long the check has been beyond its limit, of how long it must be for what."""
    return msgspec.structs.replace(
        check, held_seconds=held if check.beyond else 0.0, needed_seconds=needed, would=would
    )
