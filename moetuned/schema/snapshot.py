"""The daemon's whole state as one immutable value: what /v1/status, /metrics and sd_notify STATUS= show.

It is also the documented JSON of `moetunectl status --json`: fields are added, never renamed.
"""

from __future__ import annotations

import msgspec

from moetuned.schema.device import DeviceView
from moetuned.schema.event import Event
from moetuned.schema.model import ModelLayout
from moetuned.schema.neighbour import Neighbour
from moetuned.schema.supervision import LaunchView, SupervisionView
from moetuned.schema.verdict import Verdict


class MemoryView(msgspec.Struct, frozen=True):
    """Memory that cannot be reclaimed against its limit, bytes. `scope`: "cgroup", "machine" or "unknown"."""

    scope: str = "unknown"
    limit_bytes: int | None = None
    unreclaimable_bytes: int | None = None
    file_cache_bytes: int | None = None
    headroom_bytes: int | None = None
    backend_anonymous_bytes: int | None = None
    backend_swap_bytes: int | None = None
    seconds_to_limit: float | None = None
    unknown: str | None = None
    """Why the limit or use is unknown; None when known."""
    limit_of: str | None = None
    """Whose limit it is, for people: "limit 8.0 GiB of docker container 0123456789ab"."""
    growth_kind: str | None = None
    """What grows: none | loading | start | prompt_cache | leak | neighbour | outside | unknown (`decide.growth_kind`)."""
    growth: str | None = None
    """The same for people, with what speaks for it."""
    kv_cache_bytes: int | None = None
    """What of the backend's own memory its KV cache takes, by its settings; None: unknown."""
    backend_start_bytes: int | None = None
    """The backend's own memory, swapped out or not, when it had loaded; what it has more now it grew by since. None: not seen then."""
    kept_bytes: int = 0
    """Page cache that counts as what cannot be reclaimed, because memory.min of a cgroup below the limit keeps it."""
    own_kept_bytes: int = 0
    """What of that is in the backend's own cgroup. As long as there is some, what the backend gives back is page cache of its model instead."""


class ResidencyView(msgspec.Struct, frozen=True):
    """How much of the model is in page cache, bytes; `unknown` says why when it is not known."""

    resident_bytes: int | None = None
    expert_bytes: int | None = None
    other_bytes: int | None = None
    age_seconds: float | None = None
    unknown: str | None = None


class WarmView(msgspec.Struct, frozen=True):
    """Warming. `state`: off | waiting | running | paused | done | failed. `eta_seconds`: until it is done, None: unknown.

    `ended_wall_seconds`: when it was done or failed (Unix time); `detail` says how things were then.
    """

    state: str = "off"
    done_bytes: int = 0
    goal_bytes: int = 0
    detail: str = ""
    eta_seconds: float | None = None
    ended_wall_seconds: float | None = None

    @property
    def going_on(self) -> bool:
        """Whether it is under way, or waits to be."""
        return self.state in ("waiting", "running", "paused")


class ProtectView(msgspec.Struct, frozen=True):
    """What of the model is locked in memory. `state`: off | none | locking | held | released | failed; `detail` says why."""

    state: str = "off"
    locked_bytes: int = 0
    goal_bytes: int = 0
    detail: str = ""


class PrefillView(msgspec.Struct, frozen=True):
    """Prompts that are read now, of all slots together: tokens without what the prompt cache had, bytes the process read for them.

    `tokens_total` None: not known, between `tokens_at_least` and `tokens_at_most`; the same of `total_bytes` (likely, with its two
    ends) and `eta_seconds`. None at one end: not known. `unknown` says why nothing can be forecast; None where it can.
    """

    tokens_done: int | None = None
    tokens_total: int | None = None
    tokens_at_least: int | None = None
    tokens_at_most: int | None = None
    read_bytes: int | None = None
    total_bytes: int | None = None
    total_least_bytes: int | None = None
    total_most_bytes: int | None = None
    seconds: float | None = None
    eta_seconds: float | None = None
    eta_least_seconds: float | None = None
    eta_most_seconds: float | None = None
    unknown: str | None = None


class ContextView(msgspec.Struct, frozen=True):
    """Context length in tokens: what the backend has now, what moetuned wants, what the config prefers."""

    now: int | None = None
    wanted: int | None = None
    preferred: int | None = None
    minimum: int | None = None


class BackendView(msgspec.Struct, frozen=True):
    """One backend."""

    name: str
    kind: str
    verdict: Verdict
    sentence: str
    pid: int | None = None
    url: str | None = None
    supervised: bool = False
    discovered: bool = False
    model_path: str | None = None
    model_bytes: int | None = None
    layout: ModelLayout | None = None
    model_unknown: str | None = None
    signals: dict[str, float | None] = {}
    memory: MemoryView = MemoryView()
    residency: ResidencyView = ResidencyView()
    context: ContextView = ContextView()
    warm: WarmView = WarmView()
    protect: ProtectView = ProtectView()
    prompting: str | None = None
    prompt_cache_mib: int | None = None
    restarts: int = 0
    would_do: tuple[str, ...] = ()
    relief: tuple[str, ...] = ()
    """What the last steps of relief were and what became of them, oldest first."""
    grow_back: str | None = None
    """What would be given back of what relief took, and what is waited for; None: nothing was taken."""
    before_start: str | None = None
    """What was different at its last start from what the config asks for, because that cannot fit; None: nothing."""
    cgroup: str | None = None
    neighbours: tuple[Neighbour, ...] = ()
    """Other programs that read or grew much, when that was last asked; for five minutes."""
    devices: tuple[DeviceView, ...] = ()
    prefill: PrefillView | None = None
    """The prompt that is read now; None while none is."""
    learning: str | None = None
    """What speaks against what is learned of the use of its experts, one sentence; None: nothing."""
    state: str = ""
    """How it is, one word for a table: what stands in its way first, then what it does (`decide.backend_state`)."""
    supervision: SupervisionView = SupervisionView()
    launch: LaunchView = LaunchView()
    best_tokens_per_second: float | None = None
    """The fastest that it was seen to generate with as many requests at a time as now; None: not seen yet."""


class TunableView(msgspec.Struct, frozen=True):
    """One setting. `state`: applied | already | adjusted | drifted | yielded | skipped | failed | planned | restored.

    drifted: somebody changed it after moetuned had set it. yielded: it stays theirs until `moetunectl tune apply`.
    """

    name: str
    state: str
    wanted: str | None = None
    now: str | None = None
    original: str | None = None
    detail: str = ""


class TuneAnswer(msgspec.Struct, frozen=True):
    """What became of each setting when a person had them applied or given back, and what else is to be known."""

    tuning: tuple[TunableView, ...] = ()
    notes: tuple[str, ...] = ()


class MachineView(msgspec.Struct, frozen=True):
    """The machine, bytes."""

    memory_bytes: int | None = None
    available_bytes: int | None = None
    swap_bytes: int | None = None
    swap_free_bytes: int | None = None
    stall_memory_some_ratio: float | None = None
    stall_io_some_ratio: float | None = None


class SelfView(msgspec.Struct, frozen=True):
    """The daemon's own cost and health.

    `cpu_seconds`: of all its threads since it started; `tick_cpu_seconds`: of the last tick in the loop's thread. `tick_interval_seconds`:
    until the next tick, `tick_interval_why` says why. `pressure`: what wakes it when memory stalls, `pressure_wakes`: how often it did.
    `probe_cpu_seconds`: of what runs off the loop, by kind; `probe_budget_left_seconds`: CPU time that looks at all processes may use now.
    `event_counts`: events since it started, by name. `api_connections`: clients that are connected now.
    """

    pid: int
    version: str
    started_wall_seconds: float
    ticks: int = 0
    tick_seconds: float | None = None
    tick_lateness_seconds: float | None = None
    rss_bytes: int | None = None
    source_errors: dict[str, int] = {}
    cpu_seconds: float | None = None
    tick_cpu_seconds: float | None = None
    open_files: int | None = None
    tick_interval_seconds: float | None = None
    tick_interval_why: str | None = None
    pressure: str | None = None
    pressure_wakes: int = 0
    probe_cpu_seconds: dict[str, float] = {}
    probe_budget_left_seconds: float | None = None
    event_counts: dict[str, int] = {}
    api_connections: int = 0


class Snapshot(msgspec.Struct, frozen=True):
    """All of it at one tick."""

    status: int
    wall_seconds: float
    at_seconds: float
    mode: str
    profile: str
    config: str | None
    daemon: SelfView
    machine: MachineView = MachineView()
    backends: tuple[BackendView, ...] = ()
    tuning: tuple[TunableView, ...] = ()
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()
    cannot: tuple[str, ...] = ()
    """Actions that are turned off because the machine refused them in the self-test, one line each."""
