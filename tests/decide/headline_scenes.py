"""Backends and snapshots for headlines."""

from __future__ import annotations

from typing import Any

from moetuned.schema.model import ModelLayout
from moetuned.schema.snapshot import BackendView, SelfView, Snapshot
from moetuned.schema.verdict import MemoryState, Paging, Phase, Reason, Verdict

GIB = 1 << 30
MIB = 1 << 20
NOW = 1000.0


def view(
    name: str,
    phase: Phase,
    paging: Paging = Paging.UNKNOWN,
    memory: MemoryState = MemoryState.OK,
    /,
    *reasons: Reason,
    **more: Any,
) -> BackendView:
    """A backend of 50 GiB whose verdict has held for 40 s."""
    verdict = Verdict(name, NOW, phase, paging, memory, reasons, NOW - 40, NOW - 40, NOW - 40)
    fields: dict[str, Any] = {
        "model_path": "/models/glm.gguf",
        "model_bytes": 50 * GIB,
        "layout": ModelLayout(60, 128, 8, 3 * MIB, 47 * GIB, 3 * GIB, 3 * GIB),
    }
    return BackendView(name, "llama-server", verdict, "is so", **(fields | more))


def snapshot(*backends: BackendView, **more: Any) -> Snapshot:
    """At 1000 s of both clocks, of a daemon that looks every second."""
    fields: dict[str, Any] = {"mode": "act", "profile": "moe-offload", "config": None}
    return Snapshot(1, NOW, NOW, daemon=SelfView(1, "0.1.0", 0.0, 1000), backends=backends, **(fields | more))
