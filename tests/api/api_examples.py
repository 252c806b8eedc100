"""Snapshots and events for the tests of the interface."""

from __future__ import annotations

import msgspec

from moetuned.decide.signals import signal_units
from moetuned.schema.event import Event, EventName
from moetuned.schema.model import ModelLayout
from moetuned.schema.snapshot import (
    BackendView,
    ContextView,
    MachineView,
    MemoryView,
    ResidencyView,
    SelfView,
    Snapshot,
    TunableView,
    WarmView,
)
from moetuned.schema.supervision import SupervisionView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict

GIB = 1 << 30


def example_snapshot() -> Snapshot:
    verdict = Verdict("glm", 100.0, Phase.DECODE, Paging.THRASHING, MemoryState.OK, paging_since=60.0)
    backend = BackendView(
        name="glm",
        kind="llama-server",
        verdict=verdict,
        sentence="is thrashing for 40 s",
        pid=4242,
        model_path="/models/glm.gguf",
        model_bytes=50 * GIB,
        layout=ModelLayout(60, 128, 8, 1 << 20, 47 * GIB, 3 * GIB, 2 * GIB),
        signals={"tokens_per_second": 0.9, "read_amplification": None, "refault_ratio": float("nan")},
        memory=MemoryView("cgroup", 32 * GIB, 12 * GIB, 14 * GIB, 6 * GIB),
        residency=ResidencyView(20 * GIB, 17 * GIB, 3 * GIB),
        context=ContextView(16384, 8192, 16384, 2048),
        restarts=1,
        supervised=True,
        supervision=SupervisionView(by="process", stage="ready", restarts_by_cause={"relief": 1}),
    )
    return Snapshot(
        status=1,
        wall_seconds=1_800_000_000.0,
        at_seconds=100.0,
        mode="act",
        profile="moe-offload",
        config=None,
        daemon=SelfView(pid=1, version="0.1.0", started_wall_seconds=1_799_999_000.0, ticks=1000),
        machine=MachineView(memory_bytes=64 * GIB),
        backends=(backend,),
        tuning=(TunableView("vm.dirty_ratio", "drifted", "10", "20"),),
        events=(event("1-1"),),
    )


def known_snapshot() -> Snapshot:
    """One in which nothing is unknown: every metric has a value."""
    snapshot = example_snapshot()
    verdict = Verdict("glm", 100.0, Phase.DECODE, Paging.STREAMING, MemoryState.NEAR_LIMIT)
    backend = msgspec.structs.replace(
        snapshot.backends[0],
        verdict=verdict,
        signals=dict.fromkeys(signal_units(), 0.5),
        memory=MemoryView("cgroup", 32 * GIB, 12 * GIB, 14 * GIB, 6 * GIB, 10 * GIB, GIB),
        warm=WarmView("running", GIB, 2 * GIB),
        state="prefill",
    )
    daemon = msgspec.structs.replace(
        snapshot.daemon,
        tick_seconds=0.002,
        tick_lateness_seconds=0.0001,
        rss_bytes=33 << 20,
        source_errors={"/proc/1/io": 3},
        cpu_seconds=12.5,
        tick_cpu_seconds=0.001,
        open_files=40,
        tick_interval_seconds=1.0,
        probe_cpu_seconds={"http": 1.5},
        probe_budget_left_seconds=0.5,
        event_counts={"thrash_begin": 2},
        api_connections=3,
    )
    machine = MachineView(64 * GIB, 50 * GIB, 8 * GIB, 7 * GIB, 0.1, 0.2)
    return msgspec.structs.replace(snapshot, backends=(backend,), daemon=daemon, machine=machine)


def event(event_id: str) -> Event:
    return Event(event_id, EventName.THRASH_BEGIN, 1_800_000_000.0, 100.0, "glm", "glm thrashes")


def with_backend(snapshot: Snapshot, **changes: object) -> Snapshot:
    backend = msgspec.structs.replace(snapshot.backends[0], **changes)
    return msgspec.structs.replace(snapshot, backends=(backend,))
