"""The last minutes of every backend, a value every two seconds: the answer of GET /v1/history. Fields are added, never renamed."""

from __future__ import annotations

import msgspec

from moetuned.schema.verdict import MemoryState, Paging, Phase

HISTORY_SECONDS = 600
"""So far back values are kept."""
HISTORY_STEP_SECONDS = 2
"""Time between two values."""


class BackendHistory(msgspec.Struct, frozen=True):
    """One backend, a value every `step_seconds` of the answer, oldest first. null: unknown, or nobody looked then.

    `signals` are by name and in the unit of [Signals](signals.md). Where looks are further apart than that, each value stands for all the
    time since the look before.
    """

    backend: str
    signals: dict[str, tuple[float | None, ...]] = {}
    phase: tuple[Phase | None, ...] = ()
    paging: tuple[Paging | None, ...] = ()
    memory: tuple[MemoryState | None, ...] = ()


class Histories(msgspec.Struct, frozen=True):
    """The answer of GET /v1/history. `at_seconds`: when the step of the last values began; null before there are any."""

    at_seconds: int | None = None
    step_seconds: int = HISTORY_STEP_SECONDS
    backends: tuple[BackendHistory, ...] = ()
