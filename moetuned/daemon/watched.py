"""Everything the daemon holds of one backend between ticks. Plain state, changed by the loop's thread only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import msgspec

from moetuned import backends
from moetuned.daemon.heat_record import HeatRecord
from moetuned.daemon.supervisor import Supervisor
from moetuned.decide import detector
from moetuned.decide.context_return import ReturnState
from moetuned.decide.facts import BackendFacts
from moetuned.decide.launch_facts import with_launch
from moetuned.decide.relief import ReliefState
from moetuned.decide.relief_ladder import KvChoices
from moetuned.host.backend_http import Probe
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.model_files import ModelFile
from moetuned.host.page_cache import PAGE_BYTES
from moetuned.host.processes import CLOCK_TICKS, ProcessIdentity
from moetuned.host.warming import Warming
from moetuned.parse.numbers_http import numbers_of
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend
from moetuned.schema.device import DeviceView
from moetuned.schema.model import ModelIdentity
from moetuned.schema.neighbour import Neighbour
from moetuned.schema.sample import (
    BackendIdentity,
    BackendSample,
    HttpNumbers,
    KeptCgroup,
    RawBackend,
    RawResidency,
    Residency,
)
from moetuned.schema.signals import Signals
from moetuned.schema.snapshot import MemoryView, ProtectView, WarmView
from moetuned.schema.verdict import Paging, Verdict
from moetuned.state.backend_record import WarmBaseline

_numbers = itertools.count(1)


class Watched:
    """One backend: what the config says, what was found, what was decided last.

    `key` is of this object alone: a backend that comes later under the same name has another one, so that work for the
    earlier one is never taken for its.
    """

    def __init__(self, name: str, config: Backend | None, at_seconds: float) -> None:
        self.name = name
        self.key = f"{name} ({next(_numbers)})"
        self.config = config
        self.kind = config.kind if config is not None and config.kind is not None else "unknown"
        self.url: str | None = config.url if config is not None else None
        self.supervisor: Supervisor | None = None
        self.main: ProcessIdentity | None = None
        """The supervisor's process that `process` belongs to."""
        self.process: ProcessIdentity | None = None
        self.description: BackendDescription | None = None
        self.command: tuple[str, ...] = ()
        """Its command line, without what may be secret; (): not known yet."""
        self.cgroup = MemoryCgroup()
        self.next_cgroup: float = at_seconds
        self.disks: tuple[str, ...] = ()
        self.gone_since: float | None = at_seconds

        self.model_path: str | None = None
        self.model: ModelFile | None = None
        self.model_stamp: object = None
        """Identity, size and time of the model's parts as they were read; other ones are read again."""
        self.model_unknown: str | None = "no model known yet"
        self.kv_cost: tuple[ModelFile | None, BackendDescription | None, int | None] | None = None
        """Bytes a token of context costs, and of what that was computed."""

        self.probe: Probe | None = None
        self.http: dict[str, str] = {}
        self.http_at: float | None = None
        self.http_asked_at: float | None = None
        self.next_residency: float = at_seconds
        self.young_until: float = 0.0
        """Until then its supervisor's process is looked for often: monotonic seconds."""
        self.fresh_residency: RawResidency | None = None
        self.residency: Residency | None = None
        self.residency_at: float | None = None
        self.residency_since: float = at_seconds
        """A scan that began earlier is out of date: warming was asked for after it."""
        self.residency_unknown: str | None = "not looked at yet"

        self.detector = detector.initial(name)
        self.sample: BackendSample | None = None
        self.signals: Signals | None = None
        self.verdict = Verdict(name, at_seconds)
        self.memory = MemoryView()
        self.limits: tuple[MemoryView, ...] = ()
        """Memory under each limit it lives under, the tightest first; () unless its model is being warmed or is to be."""
        self.cache_when_steady_bytes: int | None = None
        self.cache_when_calm_bytes: int | None = None
        """Page cache of its cgroup when it last ran well."""
        self.cache_stands_in_until: float | None = None
        """Until then the above is what an earlier daemon saw, and is what the cache is compared with."""
        self.warm_kept_at: float | None = None
        self.warm_recorded: WarmBaseline | None = None
        """What is recorded of how it ran, where no supervisor records it."""
        self.record_warm: Callable[[WarmBaseline], None] | None = None
        """Records that, for the process it is now."""
        self.down_told = False
        self.hung_told = False
        self.relief = ReliefState()
        self.would_do: tuple[str, ...] = ()
        self.relief_reports: tuple[str, ...] = ()
        """What became of the last steps of relief, oldest first."""
        self.returning = ReturnState()
        self.grow_back: str | None = None
        """What would be given back of what relief took, and what is waited for; None: nothing was taken."""
        self.plan_bytes: tuple[object, dict[object, int | None]] = (None, {})
        """What other starts of it would cost, and of what that was computed."""
        self.own_bytes_when_ready: int | None = None
        """Its own memory, in RAM and swapped out, when its process was ready; None: not seen then."""
        self.sequential_bytes_per_second: float | None = None
        """The most that the devices under its model were seen to give in order; None: not known."""
        self.kv_choices: tuple[object, KvChoices | None] | None = None
        """What other settings of its KV cache would cost, and of what that was computed."""

        self.warm = WarmView()
        self.warm_wanted: str | None = None
        self.seen_loading = False
        self.ready_at: float | None = None
        self.warming: Warming | None = None
        self.warming_fills: frozenset[str] = frozenset()
        """Limits (`MemoryView.scope`) under which there was free memory when its warming was planned."""
        self.warming_stopped: str | None = None
        """Why its warming was told to end for good: somebody else took that memory."""
        self.protect = ProtectView()
        self.prompting: str | None = None
        """What the prompt warm-up does or waits for, one sentence; None: there is none."""
        self.heat: HeatRecord | None = None
        """What is known of the use of its model's experts."""
        self.has_answered = False
        """Whether its process has worked on a request since it was ready."""
        self.neighbours: tuple[Neighbour, ...] = ()
        """Who else read or grew much when that was last asked."""
        self.kept: tuple[KeptCgroup, ...] = ()
        """Cgroups of the machine, its own or not, whose memory is kept (memory.min)."""
        self.devices: tuple[DeviceView, ...] = ()

    @property
    def discovered(self) -> bool:
        """Whether nobody configured it."""
        return self.config is None

    @property
    def identity(self) -> BackendIdentity:
        """Which files belong to it."""
        return BackendIdentity(
            name=self.name,
            pid=None if self.process is None else self.process.pid,
            start_ticks=None if self.process is None else self.process.start_ticks,
            url=self.url,
            cgroup_directory=self.cgroup.counted_in,
            cgroup_version=self.cgroup.version,
            limited_above=self.cgroup.limited_above,
            disks=self.disks,
            page_bytes=PAGE_BYTES,
            clock_ticks=CLOCK_TICKS,
            dialect=self.dialect,
            numbers=self.numbers,
            kept=self.kept,
        )

    @property
    def dialect(self) -> Dialect:
        """How it answers over HTTP; until it was found, as its kind does."""
        if self.description is not None:
            return self.description.dialect
        known = backends.abilities(self.kind)
        return Dialect.LLAMA if known is None else known.dialect

    @property
    def numbers(self) -> HttpNumbers | None:
        """Where one of kind generic tells what."""
        return None if self.config is None else numbers_of(self.config.generic)

    @property
    def facts(self) -> BackendFacts:
        """What signals need to know of it."""
        model = self.model_identity
        facts = BackendFacts(
            model_bytes=None if model is None else model.size_bytes,
            layout=None if model is None else model.layout,
            disks=self.disks,
            earlier_cache_bytes=None if self.cache_stands_in_until is None else self.cache_when_calm_bytes,
            address_known=self.url is not None,
            page_bytes=PAGE_BYTES,
            clock_ticks=CLOCK_TICKS,
        )
        said = self.description
        if said is not None:  # What it was told at its start goes before its command line.
            said = msgspec.structs.replace(
                said, context_length=self.context_now(), prompt_cache_mib=self.prompt_cache_mib()
            )
        return with_launch(facts, self.kind, said, None if self.kv_cost is None else self.kv_cost[2])

    @property
    def calm(self) -> bool:
        """Whether what it does now is how it should be."""
        return self.verdict.paging in (Paging.STEADY, Paging.STREAMING)

    @property
    def recent(self) -> tuple[Mapping[str, float | None], Verdict]:
        """What the last look says, for the history."""
        return ({} if self.signals is None else self.signals.values), self.verdict

    @property
    def model_identity(self) -> ModelIdentity | None:
        """Its model, once read."""
        return None if self.model is None else self.model.identity

    @property
    def model_files(self) -> tuple[str, ...]:
        """The files of its model, once read."""
        return () if self.model is None else self.model.identity.paths

    def raw(self, now: float, http_fresh_seconds: float) -> RawBackend:
        """What was read of it besides files since the last tick; residency is handed out once.

        An answer over HTTP older than `http_fresh_seconds` is no answer.
        """
        fresh, self.fresh_residency = self.fresh_residency, None
        http = self.http if self.http_at is not None and now - self.http_at <= http_fresh_seconds else {}
        return RawBackend(http=http, residency=fresh)

    def context_now(self) -> int | None:
        """Context length it runs with, tokens; None when unknown."""
        if self.supervisor is not None and self.supervisor.process is not None and self.supervisor.knows("context"):
            return self.supervisor.state.plan.context_length
        if self.description is not None and self.description.context_length is not None:
            return self.description.context_length
        slots = None if self.sample is None or self.sample.http is None else self.sample.http.slots
        lengths = [slot.context_length for slot in slots or () if slot.context_length is not None]
        told = None if self.sample is None or self.sample.http is None else self.sample.http.context_length
        if len(lengths) < 2:
            return sum(lengths) or told
        if self.description is None:
            return None  # whether they share one context, its command line tells
        # llama-server (b11434): slots that nobody asked for share it, so that each has the whole.
        said = self.description
        shared = said.slots is None if said.kv_unified is None else said.kv_unified
        return max(lengths) if shared else sum(lengths)

    def prompt_cache_mib(self) -> int | None:
        """Prompt cache it was started with, MiB; None when unknown."""
        if self.supervisor is not None and self.supervisor.knows("prompt_cache_mib"):
            return self.supervisor.state.plan.prompt_cache_mib
        return None if self.description is None else self.description.prompt_cache_mib

    def slots_now(self) -> int | None:
        """Slots it was started with; None: nothing was said, or it is unknown."""
        if self.supervisor is not None and self.supervisor.knows("slots"):
            return self.supervisor.state.plan.slots
        return None if self.description is None else self.description.slots

    def own_bytes(self) -> int | None:
        """Its own memory, in RAM and swapped out; None: unknown."""
        if self.memory.backend_anonymous_bytes is None:
            return None
        return self.memory.backend_anonymous_bytes + (self.memory.backend_swap_bytes or 0)

    def follow_process(self, identity: ProcessIdentity, now: float) -> None:
        """Take this process for the backend from now on."""
        if self.process == identity:
            return
        if self.process is not None:
            self.forget_process(now)
        self.process = identity
        self.gone_since = None
        self.next_cgroup = now
        self.residency_unknown = "not looked at yet"
        self.next_residency = now

    def forget_baseline(self) -> None:
        """Another process was started: what is recorded of the last one is not of this one."""
        self.cache_when_calm_bytes, self.cache_stands_in_until, self.warm_kept_at = None, None, None
        self.warm_recorded, self.record_warm = None, None

    def forget_process(self, now: float) -> None:
        """The process ended: nothing that belonged to it may speak for the next one."""
        self.process = None
        self.description = None
        self.command = ()
        self.cgroup = MemoryCgroup()
        self.gone_since = now
        self.ready_at = None
        self.seen_loading = False
        self.has_answered = False
        self.hung_told = False
        self.residency_at = None
        self.residency = None
        self.fresh_residency = None
        self.residency_unknown = "the backend does not run"
        self.http, self.http_at, self.http_asked_at = {}, None, None
        self.would_do = ()
        self.own_bytes_when_ready = None
        if self.warming is not None:
            self.warming.stop()
