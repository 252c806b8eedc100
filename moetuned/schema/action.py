"""Actions that decisions ask for. Data only: the daemon carries them out."""

from __future__ import annotations

import msgspec

from moetuned.schema.relief import StepName


class RestartBackend(msgspec.Struct, frozen=True):
    """Restart a supervised backend with this context length (tokens) and prompt cache (MiB), slots, checkpoints and cache type.

    None: as it is. `reason` is one sentence for people; `frees_bytes` None: not known how much it frees. `steps`: of relief's ladder.
    """

    backend: str
    context_length: int
    prompt_cache_mib: int | None
    reason: str
    frees_bytes: int | None = None
    slots: int | None = None
    checkpoints: int | None = None
    cache_type: str | None = None
    steps: tuple[StepName, ...] = ()
