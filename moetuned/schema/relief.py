"""Relief: the steps of its ladder, and what it would do now, as data.

`ReliefPlans` is also the documented JSON of `moetunectl relief plan --json` and GET /v1/relief: fields are added, never renamed.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class StepName(StrEnum):
    """The steps, smallest first."""

    STOP_WARMING = "stop_warming"
    RELEASE_PROTECTION = "release_protection"
    SHRINK_PROMPT_CACHE = "shrink_prompt_cache"
    FEWER_CHECKPOINTS = "fewer_checkpoints"
    ONE_SLOT = "one_slot"
    QUANTISE_KV_CACHE = "quantise_kv_cache"
    SHORTER_CONTEXT = "shorter_context"


DEFAULT_STEPS = tuple(name for name in StepName if name is not StepName.QUANTISE_KV_CACHE)
"""A quantised KV cache changes what the model answers: only who asks for it gets it."""


class BeforeStart(StrEnum):
    """What becomes of a backend that is about to be started with what cannot fit."""

    FIT = "fit"
    REFUSE = "refuse"
    OFF = "off"


class GrowBack(StrEnum):
    """When what relief took is given back."""

    OFF = "off"
    WHEN_IDLE = "when_idle"


class ReliefStep(msgspec.Struct, frozen=True):
    """One step. `frees_bytes`: at most, None: unknown; `sure_bytes`: of it surely, by what is known.

    `why_not`: why it is not taken; None: it is.
    """

    name: StepName
    what: str
    frees_bytes: int | None = None
    sure_bytes: int = 0
    restart: bool = True
    why_not: str | None = None

    @property
    def taken(self) -> bool:
        """Whether it would be taken."""
        return self.why_not is None


class ReliefPlan(msgspec.Struct, frozen=True):
    """What relief would do for one backend at this moment, `decision` in one sentence.

    `missing_bytes`: of `target_headroom_bytes`, counting `headroom_bytes` as it will be soon if it goes on falling; 0: none is missing.
    `restart_seconds` None: not known how long a restart takes; `restart_source` says from what it is known, or why it is not.
    """

    backend: str
    mode: str
    memory: str
    decision: str
    headroom_bytes: int | None = None
    near_headroom_bytes: int | None = None
    target_headroom_bytes: int | None = None
    missing_bytes: int | None = None
    steps: tuple[ReliefStep, ...] = ()
    frees_bytes: int | None = None
    restart: bool = False
    restart_seconds: float | None = None
    restart_source: str = ""
    reports: tuple[str, ...] = ()
    """What became of the steps before."""
    conversations: str | None = None
    """What becomes of its conversations in that restart; None: there is none, or moetuned does not make it."""
    grow_back: str | None = None
    """What would be given back of what relief took, and what is waited for; None: nothing was taken."""


class ReliefPlans(msgspec.Struct, frozen=True):
    """The answer of GET /v1/relief."""

    backends: tuple[ReliefPlan, ...] = ()
