"""Histories beside the snapshots of `status_scenes`, for the pictures of moetunectl top."""

from __future__ import annotations

import math

import msgspec
from status_scenes import GIB, NOW, absent_and_streaming, all_unknown, beside_others, near_limit, no_backends, thrash

from moetuned.cli.top_view import Top
from moetuned.schema.history import Histories
from moetuned.schema.snapshot import Snapshot
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict
from moetuned.state.history import History

__all__ = ["NOW", "SCENES", "squeezed", "two"]


def _signals(second: int) -> dict[str, float | None]:
    """A quiet while, then somebody takes the memory; answers with pauses between them."""
    squeezed = max(0.0, min(1.0, (second - 420) / 60))
    reads = 40e6 + 420e6 * squeezed * (0.9 + 0.1 * math.sin(second / 5))
    return {
        "process_read_bytes_per_second": reads,
        "refault_bytes_per_second": reads * squeezed,
        "major_faults_per_second": 30 + 600 * squeezed,
        "tokens_per_second": None if second % 90 < 12 else 6.1 - 5.2 * squeezed,
        "expert_resident_ratio": 0.62 - 0.3 * squeezed,
        "resident_ratio": 0.65 - 0.3 * squeezed,
        "headroom_bytes": (20 - 12 * squeezed) * GIB,
        "device_read_bytes_per_second": reads,  # not in the history
    }


def _history(*names: str) -> Histories:
    history = History()
    for second in range(0, 601, 2):
        paging = Paging.THRASHING if second > 470 else Paging.WARMING if second < 20 else Paging.STREAMING
        phase = Phase.IDLE if second % 90 < 12 else Phase.DECODE
        history.record(
            7400 + second,
            {name: (_signals(second), Verdict(name, 0.0, phase, paging, MemoryState.OK)) for name in names},
        )
    return history.told()


def _with_signals(snapshot: Snapshot) -> Snapshot:
    backends = tuple(
        msgspec.structs.replace(backend, signals={**_signals(600), **backend.signals}) for backend in snapshot.backends
    )
    return msgspec.structs.replace(snapshot, backends=backends)


def squeezed() -> Top:
    return Top(_with_signals(thrash()), _history("glm"), ("rsync (pid 812, backup.service) reads 140 MB/s",))


def two() -> Top:
    return Top(absent_and_streaming(), _history("glm", "dense"))


def beside() -> Top:
    return Top(_with_signals(beside_others()), _history("glm"), ("firefox (pid 7) grew 1.2 GiB in 1 min",))


def near() -> Top:
    return Top(_with_signals(near_limit()), _history("glm"))


def nobody() -> Top:
    return Top(no_backends())


def unknown() -> Top:
    return Top(all_unknown())


def away() -> Top:
    return Top(
        _with_signals(thrash()),
        _history("glm"),
        trouble="moetuned is not running (no socket at /run/moetuned/api.sock); start it with: systemctl start moetuned.",
    )


SCENES = {scene.__name__: scene for scene in (squeezed, two, beside, near, nobody, unknown, away)}
