"""Verdicts: three independent axes a backend, each with printable reasons."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """What the backend is doing."""

    ABSENT = "absent"
    LOADING = "loading"
    IDLE = "idle"
    PREFILL = "prefill"
    DECODE = "decode"
    UNKNOWN = "unknown"


class Paging(StrEnum):
    """How it gets its bytes."""

    UNKNOWN = "unknown"
    COLD = "cold"
    WARMING = "warming"
    STEADY = "steady"
    STREAMING = "streaming"
    THRASHING = "thrashing"


class MemoryState(StrEnum):
    """How near unreclaimable memory is to its limit."""

    UNKNOWN = "unknown"
    OK = "ok"
    NEAR_LIMIT = "near_limit"
    CRITICAL = "critical"


class Reason(msgspec.Struct, frozen=True):
    """Why an axis has its value: a signal's value against a limit, held for some time. `text` is printable as it is."""

    axis: str
    signal: str
    value: float | None
    limit: float | None
    held_seconds: float | None
    text: str


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule as it stands at this tick: a signal's value against the rule's limit, and how long it has been beyond it.

    `beyond` None: cannot be told, `unknown` says why. `above`: it is beyond its limit when larger than it, else when smaller.
    `aside`: why the rule does not count now although its signal may be known, None when it counts. `weak` signs must last longer,
    `blind` ones (no tokens known) longest. `text` is the finding, printable as it is, and is only written where it is beyond.
    `would` says what follows once it has been held for `needed_seconds`. `rule`: what the rule is about, in words; several rules may
    look at one signal.
    """

    signal: str
    value: float | None = None
    limit: float | None = None
    text: str = ""
    weak: bool = False
    blind: bool = False
    beyond: bool | None = None
    above: bool = True
    axis: str = "paging"
    held_seconds: float | None = None
    needed_seconds: float | None = None
    unknown: str | None = None
    aside: str | None = None
    would: str = ""
    rule: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """The detector's answer for one backend at one tick."""

    backend: str
    at_seconds: float
    phase: Phase = Phase.UNKNOWN
    paging: Paging = Paging.UNKNOWN
    memory: MemoryState = MemoryState.UNKNOWN
    reasons: tuple[Reason, ...] = ()
    phase_since: float | None = None
    paging_since: float | None = None
    memory_since: float | None = None
