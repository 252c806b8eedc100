"""Headlines: how a backend is and what to do about it, for somebody who has never seen the tool.

It is also the documented JSON of `moetunectl status --json` and `moetunectl check --json`: fields are added, never renamed.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moetuned.schema.snapshot import Snapshot


class Severity(StrEnum):
    """How much it matters. `unknown`: it cannot be told whether it does."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    CRITICAL = "critical"


class Situation(StrEnum):
    """What a headline is about, one word for programs."""

    WELL = "well"
    STREAMING = "streaming"
    WARMING = "warming"
    COLD = "cold"
    UNTOLD = "untold"
    READING_PROMPT = "reading_prompt"
    LOADING = "loading"
    TRANSITION = "transition"
    PAUSED = "paused"
    STARVED = "starved"
    EVICTED = "evicted"
    NEAR_LIMIT = "near_limit"
    AT_LIMIT = "at_limit"
    THRASHING = "thrashing"
    HUNG = "hung"
    DOWN = "down"
    UNSEEN = "unseen"
    DRIFTED = "drifted"
    NO_BACKEND = "no_backend"
    STALE = "stale"


class Headline(msgspec.Struct, frozen=True):
    """One backend, or the machine (`backend` None). `text` says how it is, `advice` what to do; each is whole sentences, both are
    printable as they are but for control characters in names. `advice` "": there is nothing to do.
    """

    severity: Severity
    situation: Situation
    text: str
    advice: str = ""
    backend: str | None = None

    @property
    def is_stale(self) -> bool:
        """Whether it says that all others are old."""
        return self.situation is Situation.STALE

    @property
    def line(self) -> str:
        """All of it as one line."""
        subject = "" if self.backend is None else f"{self.backend}: "
        return f"{subject}{self.text}{f' {self.advice}' if self.advice else ''}"


class StatusReport(Snapshot, frozen=True):
    """What `moetunectl status --json` prints: the Snapshot of /v1/status and its headlines, worst first."""

    headlines: tuple[Headline, ...] = ()
