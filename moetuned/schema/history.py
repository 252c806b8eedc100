"""The last minutes of every backend, one value a second: the answer of GET /v1/history. Fields are added, never renamed."""

from __future__ import annotations

import msgspec

from moetuned.schema.verdict import MemoryState, Paging, Phase

HISTORY_SECONDS = 600
"""So far back values are kept."""


class BackendHistory(msgspec.Struct, frozen=True):
    """One backend, a value a second, oldest first; the last is of the answer's `at_seconds`. null: unknown, or nobody looked then.

    `signals` are by name and in the unit of [Signals](signals.md). Where looks are further apart than a second, each value stands for all
    the seconds since the look before.
    """

    backend: str
    signals: dict[str, tuple[float | None, ...]] = {}
    phase: tuple[Phase | None, ...] = ()
    paging: tuple[Paging | None, ...] = ()
    memory: tuple[MemoryState | None, ...] = ()


class Histories(msgspec.Struct, frozen=True):
    """The answer of GET /v1/history. `at_seconds`: the second of the last values; null before there are any."""

    at_seconds: int | None = None
    step_seconds: int = 1
    backends: tuple[BackendHistory, ...] = ()
