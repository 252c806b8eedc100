"""Every metric there is: name, type, unit, help, labels and how to get it from a Snapshot. The only list of metrics.

`metrics` writes it as text; the reference page is made from it. What is unknown gives no sample, never a 0.
Signals are not listed by hand: each file of `decide.signals` is a metric `moetuned_backend_<signal>`, its docstring the help.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Literal

import msgspec

from moetuned.decide import signals
from moetuned.decide.backend_state import STATE_WORDS
from moetuned.schema.event import EventName
from moetuned.schema.snapshot import BackendView, Snapshot
from moetuned.schema.supervision import RestartCause
from moetuned.schema.verdict import MemoryState, Paging, Phase

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Label values, in the order of the metric's labels, and the value."""

TUNABLE_STATES = ("adjusted", "already", "applied", "drifted", "failed", "planned", "restored", "skipped", "yielded")


class Metric(msgspec.Struct, frozen=True):
    """One metric. `name` is whole, with unit and, on counters, `_total`; `unit` is "" where a value has none.

    An info is always 1 and says what it has to say in its labels; its name ends in `_info`.
    """

    name: str
    kind: Literal["gauge", "counter", "info"]
    unit: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Snapshot], Samples]

    @property
    def family(self) -> str:
        """Its name without `_total` or `_info`, as OpenMetrics has it above the samples."""
        return self.name.removesuffix({"counter": "_total", "info": "_info"}.get(self.kind, ""))


Number = float | int | None


def _machine(read: Callable[[Snapshot], Number]) -> Callable[[Snapshot], Samples]:
    def samples(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
        value = read(snapshot)
        if value is not None and not math.isnan(value):
            yield (), float(value)

    return samples


def _each(read: Callable[[BackendView], Number]) -> Callable[[Snapshot], Samples]:
    def samples(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
        for backend in snapshot.backends:
            value = read(backend)
            if value is not None and not math.isnan(value):
                yield (backend.name,), float(value)

    return samples


def _states(read: Callable[[BackendView], str], states: Iterable[str]) -> Callable[[Snapshot], Samples]:
    known = tuple(states)

    def samples(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
        for backend in snapshot.backends:
            for state in known:
                yield (backend.name, state), float(read(backend) == state)

    return samples


def _parts(
    experts: Callable[[BackendView], Number], other: Callable[[BackendView], Number]
) -> Callable[[Snapshot], Samples]:
    def samples(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
        for backend in snapshot.backends:
            for part, value in (("experts", experts(backend)), ("other", other(backend))):
                if value is not None:
                    yield (backend.name, part), float(value)

    return samples


def _restarts(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], float]]:
    for backend in snapshot.backends:
        if backend.supervised:
            for cause in RestartCause:
                yield (backend.name, cause.value), float(backend.supervision.restarts_by_cause.get(cause.value, 0))


def _info(snapshot: Snapshot) -> Samples:
    return [((item.name, item.kind, item.model_path or ""), 1.0) for item in snapshot.backends]


def _tunables(snapshot: Snapshot) -> Samples:
    counts = dict.fromkeys(TUNABLE_STATES, 0)
    for tunable in snapshot.tuning:
        counts[tunable.state] = counts.get(tunable.state, 0) + 1
    return [((state,), float(count)) for state, count in counts.items()]


def _source_errors(snapshot: Snapshot) -> Samples:
    return [((source,), float(count)) for source, count in snapshot.daemon.source_errors.items()]


def _event_counts(snapshot: Snapshot) -> Samples:
    counts = snapshot.daemon.event_counts
    return [((name.value,), float(counts.get(name.value, 0))) for name in EventName]


_BACKEND = ("backend",)

_FIXED = (
    Metric(
        "moetuned_build_info",
        "info",
        "",
        "1; the label says which version runs.",
        ("version",),
        lambda snapshot: [((snapshot.daemon.version,), 1.0)],
    ),
    Metric(
        "moetuned_start_time_seconds",
        "gauge",
        "seconds",
        "Unix time at which the daemon started.",
        (),
        _machine(lambda snapshot: snapshot.daemon.started_wall_seconds),
    ),
    Metric(
        "moetuned_snapshot_time_seconds",
        "gauge",
        "seconds",
        "Unix time of the look that these values are from.",
        (),
        _machine(lambda snapshot: snapshot.wall_seconds),
    ),
    Metric(
        "moetuned_ticks_total",
        "counter",
        "",
        "Looks since the daemon started.",
        (),
        _machine(lambda snapshot: snapshot.daemon.ticks),
    ),
    Metric(
        "moetuned_tick_duration_seconds",
        "gauge",
        "seconds",
        "How long the last look took.",
        (),
        _machine(lambda snapshot: snapshot.daemon.tick_seconds),
    ),
    Metric(
        "moetuned_tick_lateness_seconds",
        "gauge",
        "seconds",
        "How much later than due the last look began.",
        (),
        _machine(lambda snapshot: snapshot.daemon.tick_lateness_seconds),
    ),
    Metric(
        "moetuned_resident_memory_bytes",
        "gauge",
        "bytes",
        "Memory of the daemon itself (RSS).",
        (),
        _machine(lambda snapshot: snapshot.daemon.rss_bytes),
    ),
    Metric(
        "moetuned_cpu_seconds_total",
        "counter",
        "seconds",
        "CPU time of the daemon itself, all its threads.",
        (),
        _machine(lambda snapshot: snapshot.daemon.cpu_seconds),
    ),
    Metric(
        "moetuned_tick_cpu_seconds",
        "gauge",
        "seconds",
        "CPU time of the last look, without what runs off the loop.",
        (),
        _machine(lambda snapshot: snapshot.daemon.tick_cpu_seconds),
    ),
    Metric(
        "moetuned_tick_interval_seconds",
        "gauge",
        "seconds",
        "Time between looks now: longer while nothing happens.",
        (),
        _machine(lambda snapshot: snapshot.daemon.tick_interval_seconds),
    ),
    Metric(
        "moetuned_pressure_wakes_total",
        "counter",
        "",
        "How often the kernel said that tasks stall for memory (PSI triggers), and a look was made at once.",
        (),
        _machine(lambda snapshot: snapshot.daemon.pressure_wakes),
    ),
    Metric(
        "moetuned_open_files",
        "gauge",
        "",
        "Files the daemon has open.",
        (),
        _machine(lambda snapshot: snapshot.daemon.open_files),
    ),
    Metric(
        "moetuned_probe_cpu_seconds_total",
        "counter",
        "seconds",
        "CPU time of what the daemon does off its loop, by kind.",
        ("kind",),
        lambda snapshot: [((kind,), used) for kind, used in snapshot.daemon.probe_cpu_seconds.items()],
    ),
    Metric(
        "moetuned_probe_budget_left_seconds",
        "gauge",
        "seconds",
        "CPU time that looks at all processes may use now; 0 or less: none are made.",
        (),
        _machine(lambda snapshot: snapshot.daemon.probe_budget_left_seconds),
    ),
    Metric(
        "moetuned_api_connections",
        "gauge",
        "",
        "Clients that are connected to the daemon's socket and port.",
        (),
        _machine(lambda snapshot: snapshot.daemon.api_connections),
    ),
    Metric(
        "moetuned_events_total",
        "counter",
        "",
        "Events since the daemon started, by name.",
        ("event",),
        _event_counts,
    ),
    Metric("moetuned_source_errors_total", "counter", "", "Reads that failed, by source.", ("source",), _source_errors),
    Metric("moetuned_tunables", "gauge", "", "Kernel settings by what became of them.", ("state",), _tunables),
    Metric(
        "moetuned_machine_memory_bytes",
        "gauge",
        "bytes",
        "Memory of the machine.",
        (),
        _machine(lambda snapshot: snapshot.machine.memory_bytes),
    ),
    Metric(
        "moetuned_machine_memory_available_bytes",
        "gauge",
        "bytes",
        "MemAvailable of the kernel. It counts page cache as available: high while a model thrashes.",
        (),
        _machine(lambda snapshot: snapshot.machine.available_bytes),
    ),
    Metric(
        "moetuned_machine_swap_bytes",
        "gauge",
        "bytes",
        "Swap space.",
        (),
        _machine(lambda snapshot: snapshot.machine.swap_bytes),
    ),
    Metric(
        "moetuned_machine_swap_free_bytes",
        "gauge",
        "bytes",
        "Swap space that is free.",
        (),
        _machine(lambda snapshot: snapshot.machine.swap_free_bytes),
    ),
    Metric(
        "moetuned_machine_memory_stall_ratio",
        "gauge",
        "ratio",
        "Share of time in which some task waited for memory (PSI some).",
        (),
        _machine(lambda snapshot: snapshot.machine.stall_memory_some_ratio),
    ),
    Metric(
        "moetuned_machine_io_stall_ratio",
        "gauge",
        "ratio",
        "Share of time in which some task waited for a disk (PSI some).",
        (),
        _machine(lambda snapshot: snapshot.machine.stall_io_some_ratio),
    ),
    Metric(
        "moetuned_backend_info",
        "info",
        "",
        "1; the labels say what the backend is.",
        ("backend", "kind", "model"),
        _info,
    ),
    Metric(
        "moetuned_backend_state",
        "gauge",
        "",
        "1 for how it is in one word, 0 for the rest: what stands in its way first, then what it does.",
        ("backend", "state"),
        _states(lambda backend: backend.state, STATE_WORDS),
    ),
    Metric(
        "moetuned_backend_phase",
        "gauge",
        "",
        "1 for what the backend is doing, 0 for the rest.",
        ("backend", "state"),
        _states(lambda backend: backend.verdict.phase, Phase),
    ),
    Metric(
        "moetuned_backend_paging",
        "gauge",
        "",
        "1 for how it gets its bytes, 0 for the rest.",
        ("backend", "state"),
        _states(lambda backend: backend.verdict.paging, Paging),
    ),
    Metric(
        "moetuned_backend_memory",
        "gauge",
        "",
        "1 for how near memory is to its limit, 0 for the rest.",
        ("backend", "state"),
        _states(lambda backend: backend.verdict.memory, MemoryState),
    ),
    Metric(
        "moetuned_backend_restarts_total",
        "counter",
        "",
        "Restarts by moetuned since the daemon started, by why: to free memory (relief), because somebody asked for it (by_hand), or "
        "because it had ended by itself (exit).",
        ("backend", "cause"),
        _restarts,
    ),
    Metric(
        "moetuned_backend_model_bytes",
        "gauge",
        "bytes",
        "Size of the model's files.",
        _BACKEND,
        _each(lambda backend: backend.model_bytes),
    ),
    Metric(
        "moetuned_backend_model_part_bytes",
        "gauge",
        "bytes",
        "Size of the model's experts, and of all the rest.",
        ("backend", "part"),
        _parts(
            lambda backend: None if backend.layout is None else backend.layout.expert_bytes,
            lambda backend: None if backend.layout is None else backend.layout.other_bytes,
        ),
    ),
    Metric(
        "moetuned_backend_resident_bytes",
        "gauge",
        "bytes",
        "How much of the model is in page cache.",
        _BACKEND,
        _each(lambda backend: backend.residency.resident_bytes),
    ),
    Metric(
        "moetuned_backend_resident_part_bytes",
        "gauge",
        "bytes",
        "How much of the model's experts, and of all the rest, is in page cache.",
        ("backend", "part"),
        _parts(lambda backend: backend.residency.expert_bytes, lambda backend: backend.residency.other_bytes),
    ),
    Metric(
        "moetuned_backend_memory_limit_bytes",
        "gauge",
        "bytes",
        "Limit of the memory the backend lives in.",
        _BACKEND,
        _each(lambda backend: backend.memory.limit_bytes),
    ),
    Metric(
        "moetuned_backend_memory_held_bytes",
        "gauge",
        "bytes",
        "Memory below that limit that cannot be reclaimed.",
        _BACKEND,
        _each(lambda backend: backend.memory.unreclaimable_bytes),
    ),
    Metric(
        "moetuned_backend_memory_page_cache_bytes",
        "gauge",
        "bytes",
        "Page cache below that limit.",
        _BACKEND,
        _each(lambda backend: backend.memory.file_cache_bytes),
    ),
    Metric(
        "moetuned_backend_swapped_bytes",
        "gauge",
        "bytes",
        "Private memory of the backend that is swapped out.",
        _BACKEND,
        _each(lambda backend: backend.memory.backend_swap_bytes),
    ),
    Metric(
        "moetuned_backend_context_tokens",
        "gauge",
        "tokens",
        "Context length the backend has.",
        _BACKEND,
        _each(lambda backend: backend.context.now),
    ),
    Metric(
        "moetuned_backend_context_wanted_tokens",
        "gauge",
        "tokens",
        "Context length that moetuned wants.",
        _BACKEND,
        _each(lambda backend: backend.context.wanted),
    ),
    Metric(
        "moetuned_backend_warm_done_bytes",
        "gauge",
        "bytes",
        "Warmed so far in this warming.",
        _BACKEND,
        _each(lambda backend: backend.warm.done_bytes if backend.warm.goal_bytes else None),
    ),
    Metric(
        "moetuned_backend_warm_goal_bytes",
        "gauge",
        "bytes",
        "What this warming is to reach.",
        _BACKEND,
        _each(lambda backend: backend.warm.goal_bytes or None),
    ),
)


def _signal(name: str) -> Callable[[Snapshot], Samples]:
    return _each(lambda backend: backend.signals.get(name))


def signal_metric_name(name: str, unit: str) -> str:
    """Name of a signal's metric: it carries the unit, as Prometheus wants it."""
    suffix = "" if unit != "ratio" or name.endswith("_ratio") else "_ratio"
    return f"moetuned_backend_{name}{suffix}"


@cache
def catalogue() -> tuple[Metric, ...]:
    """All metrics, sorted by name."""
    derived = []
    for name, unit in signals.signal_units().items():
        if name.startswith("machine_"):  # belongs to everybody: it is a metric of the machine above
            continue
        module = importlib.import_module(f"{signals.__name__}.{name}")
        text = (module.__doc__ or name).split("\n\n", 1)[0]
        derived.append(
            Metric(signal_metric_name(name, unit), "gauge", unit, " ".join(text.split()), _BACKEND, _signal(name))
        )
    return tuple(sorted((*_FIXED, *derived), key=lambda metric: metric.name))
