"""Hand-made Snapshots of situations a person meets; each has a golden file of the screen."""

from __future__ import annotations

from moetuned.schema.device import DeviceView
from moetuned.schema.event import Event, EventName
from moetuned.schema.model import ModelLayout
from moetuned.schema.neighbour import Neighbour
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
from moetuned.schema.verdict import MemoryState, Paging, Phase, Reason, Verdict

GIB = 1 << 30
NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
LAYOUT = ModelLayout(60, 128, 8, 3 << 20, 47 * GIB, 3 * GIB, 3 * GIB)
MACHINE = MachineView(32 * GIB, 28 * GIB, 8 * GIB, 7 * GIB, 0.12, 0.31)
TUNED = (
    TunableView("vm.overcommit_memory", "applied", "1", "1", "0"),
    TunableView("vm.dirty_ratio", "applied", "10", "10", "20"),
    TunableView("vm.dirty_background_ratio", "applied", "5", "5", "10"),
    TunableView("vm.vfs_cache_pressure", "already", "50", "50", "50"),
    TunableView("transparent_hugepage", "applied", "never", "never", "madvise"),
)


def _snapshot(*backends: BackendView, **changes: object) -> Snapshot:
    fields: dict[str, object] = {
        "status": 1,
        "wall_seconds": NOW,
        "at_seconds": 8000.0,
        "mode": "act",
        "profile": "moe-offload",
        "config": "/etc/moetuned/moetuned.yaml",
        "daemon": SelfView(812, "0.1.0", NOW - 7500, 7500, 0.0012, 0.0003, 30 << 20),
        "machine": MACHINE,
        "backends": backends,
        "tuning": TUNED,
    }
    return Snapshot(**(fields | changes))


def _backend(verdict: Verdict, sentence: str, **changes: object) -> BackendView:
    fields: dict[str, object] = {
        "name": "glm",
        "kind": "llama-server",
        "verdict": verdict,
        "sentence": sentence,
        "pid": 4242,
        "url": "http://127.0.0.1:8080",
        "supervised": True,
        "model_path": "/models/glm-00001-of-00007.gguf",
        "model_bytes": 50 * GIB,
        "layout": LAYOUT,
        "memory": MemoryView("machine", 32 * GIB, 12 * GIB, 15 * GIB, 20 * GIB, 4 * GIB, 0),
        "residency": ResidencyView(18 * GIB, 15 * GIB, 3 * GIB, 4.0),
        "context": ContextView(16384, 16384, 16384, 2048),
        "prompt_cache_mib": 1024,
    }
    return BackendView(**(fields | changes))


def thrash() -> Snapshot:
    reasons = (
        Reason(
            "paging", "refault_ratio", 0.99, 0.5, 12, "refaults 455 MB/s of 457 MB/s read for 12 s (limit 50 % for 8 s)"
        ),
        Reason(
            "paging",
            "read_amplification",
            9.3,
            3.0,
            12,
            "reads 9.3 times what the missing experts need (limit 3 for 8 s)",
        ),
    )
    verdict = Verdict("glm", 8000.0, Phase.DECODE, Paging.THRASHING, MemoryState.OK, reasons, 7900.0, 7960.0, 2000.0)
    backend = _backend(
        verdict,
        "is thrashing for 40 s: it reads the same bytes again and again, reads 457 MB/s, 0.9 tokens/s",
        signals={
            "process_read_bytes_per_second": 457e6,
            "refault_bytes_per_second": 455e6,
            "bytes_per_token": 508e6,
            "read_amplification": 9.3,
            "tokens_per_second": 0.9,
        },
    )
    events = (
        Event("1-1", EventName.BACKEND_RECOVERED, NOW - 90_000, 1.0, "glm", "glm is ready"),
        Event(
            "1-2", EventName.THRASH_BEGIN, NOW - 40, 7960.0, "glm",
            "it reads 457 MB/s again and again; firefox grew 6.0 GiB and took its cache, close it",
        ),
    )  # fmt: skip
    return _snapshot(backend, events=events)


def beside_others() -> Snapshot:
    verdict = Verdict("glm", 8000.0, Phase.DECODE, Paging.STREAMING, MemoryState.OK)
    backend = _backend(
        verdict,
        "is answering and streams experts from disk at the expected cost, reads 310 MB/s, 2.1 tokens/s",
        signals={"process_read_bytes_per_second": 310e6, "tokens_per_second": 2.1},
        neighbours=(
            Neighbour("rsync", "read", 42 * GIB, 300.0, 812, "backup.service",
                      "rsync (pid 812, backup.service) read 42.0 GiB in the last 5 min"),
            Neighbour("firefox", "grew", 6 * GIB, 600.0, 7, None, "firefox (pid 7) grew 6.0 GiB since 14:02"),
        ),
        devices=(
            DeviceView("nvme0n1", "Vendor 990", "nvme", False,
                       detail="its cgroup limits what it reads to 300 MB/s (/sys/fs/cgroup/glm/io.max)"),
            DeviceView("sda", "Vendor HD", "sata", True),
            DeviceView("vdb", None, "virtio", True, virtual=True),
        ),
    )  # fmt: skip
    return _snapshot(backend)


def near_limit() -> Snapshot:
    reasons = (
        Reason("memory", "headroom_ratio", 0.05, 0.08, 6, "headroom 1.6 GiB, 5 % of 32.0 GiB for 6 s (limit 8 %)"),
    )
    verdict = Verdict("glm", 8000.0, Phase.DECODE, Paging.STEADY, MemoryState.NEAR_LIMIT, reasons)
    backend = _backend(
        verdict,
        "memory is close to its limit for 6.0 s (1.6 GiB of 32.0 GiB left, full in about 2 min 10 s); is answering; "
        "the experts it uses are in memory, 5.8 tokens/s",
        memory=MemoryView("cgroup", 32 * GIB, int(30.4 * GIB), GIB, int(1.6 * GIB), 14 * GIB, 2 * GIB, 130.0),
        context=ContextView(16384, 8192, 16384, 2048),
        signals={"process_read_bytes_per_second": 1.2e6, "tokens_per_second": 5.8, "refault_bytes_per_second": 2e5},
        would_do=(
            "restart glm with a context of 8192 tokens and a prompt cache of 256 MiB, which frees about 3.1 GiB",
        ),
        restarts=1,
    )
    drifted = (*TUNED[1:], TunableView("vm.overcommit_memory", "drifted", "1", "0", "0", "somebody set it back"))
    return _snapshot(backend, tuning=drifted, mode="observe")


def warming() -> Snapshot:
    verdict = Verdict("glm", 8000.0, Phase.IDLE, Paging.WARMING, MemoryState.OK)
    backend = _backend(
        verdict,
        "is idle and is warming up, reads 2.1 GB/s, 36 % of the model in memory",
        warm=WarmView("running", 9 * GIB, 18 * GIB, "other parts first, then experts"),
        signals={"process_read_bytes_per_second": 2.1e9},
    )
    return _snapshot(backend)


def no_backends() -> Snapshot:
    return _snapshot(
        mode="observe", profile="observe", config=None, tuning=(), machine=MachineView(32 * GIB, 28 * GIB, 0, 0)
    )


def all_unknown() -> Snapshot:
    backend = BackendView(
        name="found-\x1b[31m1",
        kind="llama-server",
        verdict=Verdict("found", 8000.0),
        sentence="is doing something that cannot be seen; whether it thrashes cannot be told yet",
        discovered=True,
        model_unknown="/proc/4242/fd cannot be read: permission denied",
        memory=MemoryView(unknown="the memory cgroup could not be read: permission denied"),
        residency=ResidencyView(unknown="cachestat needs Linux 6.5 and mincore needs the file's owner"),
    )
    return _snapshot(
        backend,
        machine=MachineView(),
        tuning=(
            TunableView(
                "vm.dirty_ratio", "failed", "10", None, None, "write /proc/sys/vm/dirty_ratio: permission denied"
            ),
        ),
        notes=("running without root: nothing is changed",),
        wall_seconds=NOW - 95,
    )


def absent_and_streaming() -> Snapshot:
    absent = _backend(
        Verdict("glm", 8000.0, Phase.ABSENT), "is not running", pid=None, residency=ResidencyView(unknown="not looked at while it is down"),
        memory=MemoryView(unknown="no process"),
    )  # fmt: skip
    dense = _backend(
        Verdict("dense", 8000.0, Phase.DECODE, Paging.STREAMING, MemoryState.OK),
        "is answering and streams experts from disk at the expected cost, reads 1.1 GB/s, 1.4 tokens/s",
        name="dense",
        supervised=False,
        layout=None,
        model_unknown="the file is no GGUF of version 2 or 3",
        signals={"process_read_bytes_per_second": 1.1e9, "tokens_per_second": 1.4, "refault_bytes_per_second": 1.0e9},
        warm=WarmView("off", detail="only watched"),
    )
    return _snapshot(absent, dense)


SCENES = {
    scene.__name__: scene
    for scene in (thrash, beside_others, near_limit, warming, no_backends, all_unknown, absent_and_streaming)
}
