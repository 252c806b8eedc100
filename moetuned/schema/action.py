"""Actions that decisions ask for and what became of them. Data only: workers in `daemon` carry them out."""

from __future__ import annotations

import msgspec

from moetuned.schema.event import Event
from moetuned.schema.model import ByteRange


class Warm(msgspec.Struct, frozen=True, tag="warm"):
    """Touch first `twice`, two times each, then `ranges` of the backend's model, each in order; together within the budget."""

    backend: str
    ranges: tuple[ByteRange, ...]
    budget_bytes: int
    reason: str
    twice: tuple[ByteRange, ...] = ()


class RestartBackend(msgspec.Struct, frozen=True, tag="restart"):
    """Restart a supervised backend with this context length and prompt cache (MiB; None: as it is)."""

    backend: str
    context_length: int
    prompt_cache_mib: int | None
    reason: str
    frees_bytes: int | None = None


class SendAlert(msgspec.Struct, frozen=True, tag="alert"):
    """Give an event to the sinks that subscribe to it."""

    event: Event


Action = Warm | RestartBackend | SendAlert


class Outcome(msgspec.Struct, frozen=True):
    """What became of an action. `detail` is one sentence; `skipped` means refused or kept as "would do"."""

    action: Action
    ok: bool
    detail: str
    duration_seconds: float
