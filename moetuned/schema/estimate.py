"""What `moetunectl estimate` says, as data: the documented JSON of `--json`. Fields are added, never renamed.

Amounts are ranges, and every one carries a sentence saying where it comes from.
"""

from __future__ import annotations

import msgspec

UNKNOWN_SWAP = "unknown for another machine"
"""Source of a swap of 0 bytes that stands for none known."""


class Amount(msgspec.Struct, frozen=True):
    """Bytes between `low_bytes` and `high_bytes`; equal when exact. `source`: where the figure comes from."""

    low_bytes: int
    high_bytes: int
    source: str


class Rate(msgspec.Struct, frozen=True):
    """Bytes a second, as a range."""

    low_bytes_per_second: float
    high_bytes_per_second: float
    source: str


class LedgerLine(msgspec.Struct, frozen=True):
    """One use of memory. `place`: "ram" or "vram". `group`: system | backend | weights (must be resident) | experts | swap."""

    name: str
    label: str
    group: str
    amount: Amount
    place: str = "ram"


class Ledger(msgspec.Struct, frozen=True):
    """Where the memory goes. `room` is what is left to cache experts, `ratio_low` and `ratio_high` its share of all experts
    (1 when they fit, or when there are none). `shortage` is why it cannot run, one sentence; None when it can.
    """

    limit: Amount
    lines: tuple[LedgerLine, ...]
    room: Amount
    ratio_low: float
    ratio_high: float
    vram_limit: Amount | None = None
    shortage: str | None = None


class LaunchPlan(msgspec.Struct, frozen=True):
    """How the backend would be started. `prompt_cache_bytes` None: no limit. `cpu_moe_layers`: layers whose experts stay
    off the GPU, `gpu_layers` those on it; both None without a GPU.
    """

    context_length: int
    slots: int = 1
    unified: bool = False
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    prompt_cache_bytes: int | None = 0
    checkpoints: int = 0
    ubatch_tokens: int = 512
    repack: bool = False
    threads: int | None = None
    cpu_moe_layers: int | None = None
    gpu_layers: int | None = None


class MachineFacts(msgspec.Struct, frozen=True):
    """The machine a model would run on. `limit` is RAM or a container's limit, whichever is smaller; `system` what is taken
    already and cannot be reclaimed. `cpu_features`: flags of /proc/cpuinfo, () when unknown. `load`: threads that want a core now.
    """

    limit: Amount
    system: Amount
    swap: Amount
    physical_cores: int | None = None
    cores_source: str = ""
    cpu_features: tuple[str, ...] = ()
    load: float | None = None
    vram: Amount | None = None


class DiskFacts(msgspec.Struct, frozen=True):
    """The disk under a model. `kind`: nvme | ssd | hard disk | unknown. `window_bytes`: read-ahead of a fault."""

    kind: str
    kind_source: str
    window_bytes: int
    window_source: str
    rate: Rate | None = None
    """Measured or given, for whole slices as faults read them; None: assumed from the kind."""
    sequential_bytes_per_second: float | None = None


class Miss(msgspec.Struct, frozen=True):
    """Share of a token's expert bytes that is not in memory, as a range."""

    low: float
    high: float
    source: str


class Measured(msgspec.Struct, frozen=True):
    """What the daemon saw of this model here: bytes read a token, over at least some hundred tokens."""

    bytes_per_token: float
    tokens: int
    tokens_per_second: float | None = None


class Forecast(msgspec.Struct, frozen=True):
    """Tokens a second as a range, and what it was made from. A forecast, not a promise. `word`: the label of the ratio, or of
    whether all of a model without experts stays in memory. `gpu`: what it works through; None where it has nothing.
    """

    word: str
    advice: str
    tokens_per_second_low: float
    tokens_per_second_high: float
    active_expert_bytes: int
    every_token_bytes: int
    miss: Miss
    disk_bytes_per_token: Amount
    disk: Rate
    compute: Rate
    limited_by: str
    gpu: Rate | None = None


class ContextStep(msgspec.Struct, frozen=True):
    """Another setting of the cache: `frees_bytes` against the planned one, and the ratio it would give."""

    context_length: int
    cache_type_k: str
    cache_type_v: str
    frees_bytes: int
    ratio_low: float


class LongestContext(msgspec.Struct, frozen=True):
    """The longest context that costs less than one percentage point of the ratio; `reason` says what ends it."""

    context_length: int
    reason: str


class Launch(msgspec.Struct, frozen=True):
    """The recommended command. `notes`: what was left out or must be known, one sentence each."""

    command: tuple[str, ...]
    source: str
    notes: tuple[str, ...] = ()


class Exact(msgspec.Struct, frozen=True):
    """What llama-fit-params says of the same plan, bytes; `unknown`: why it said nothing."""

    model_bytes: int | None = None
    context_bytes: int | None = None
    compute_bytes: int | None = None
    source: str = ""
    unknown: str | None = None


class Estimate(msgspec.Struct, frozen=True):
    """All of it. `expert_bytes` and `other_bytes` together are the size of the model's files."""

    model: str
    parts: tuple[str, ...]
    architecture: str | None
    size_bytes: int
    present_bytes: int
    layers: int
    experts: int
    experts_used: int
    expert_slice_bytes: int
    expert_bytes: int
    other_bytes: int
    active_expert_bytes: int
    kv_bytes_per_token: int
    kv_rough: str | None
    trained_context: int | None
    machine: MachineFacts
    disk: DiskFacts
    plan: LaunchPlan
    ledger: Ledger
    defaults: Ledger
    forecast: Forecast
    longest_context: LongestContext
    steps: tuple[ContextStep, ...]
    launch: Launch
    fits: bool
    exact: Exact | None = None
    notes: tuple[str, ...] = ()
