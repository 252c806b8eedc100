"""Why a verdict is what it is: each rule that was looked at, what is unknown, and what would change the verdict.

It is also the documented JSON of `moetunectl explain --json` and GET /v1/explain: fields are added, never renamed.
"""

from __future__ import annotations

import msgspec

from moetuned.schema.verdict import Check


class UnknownSignal(msgspec.Struct, frozen=True):
    """A signal that a rule would have looked at or a person may miss, and why it is not known."""

    signal: str
    why: str


class AxisExplanation(msgspec.Struct, frozen=True):
    """One axis of the verdict. `value` has held for `since_seconds` because of `reasons`.

    `checks`: the rules, each printable; `changes`: sentences of what would make it another.
    """

    axis: str
    value: str
    since_seconds: float | None
    reasons: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    changes: tuple[str, ...] = ()


class Explanation(msgspec.Struct, frozen=True):
    """One backend at one moment (monotonic seconds)."""

    backend: str
    at_seconds: float
    axes: tuple[AxisExplanation, ...] = ()
    unknown: tuple[UnknownSignal, ...] = ()


class Explanations(msgspec.Struct, frozen=True):
    """The answer of GET /v1/explain."""

    backends: tuple[Explanation, ...] = ()
