"""Backends as `moetunectl backend` meets them."""

from __future__ import annotations

from typing import Any

import msgspec

from moetuned.api.errors import DaemonError
from moetuned.schema.model import ModelLayout
from moetuned.schema.snapshot import BackendView, ContextView, MemoryView, SelfView, Snapshot
from moetuned.schema.supervision import (
    BackendAnswer,
    BackendDo,
    Change,
    LaunchView,
    Restart,
    RestartCause,
    SupervisionView,
)
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict

GIB = 1 << 30
NOW = 1_800_000_000.0
RESTARTS = (
    Restart(NOW - 100_000, RestartCause.EXIT, "it exited with code 1", 8192, 8192),
    Restart(NOW - 600, RestartCause.RELIEF, "headroom 1.0 GiB: restart with a context of 4096", 8192, 4096, 40.4),
)
GLM = BackendView(
    name="glm",
    kind="llama-server",
    verdict=Verdict("glm", 8000.0, Phase.DECODE, Paging.STEADY, MemoryState.OK),
    sentence="is answering; the experts it uses are in memory, 3.1 tokens/s",
    pid=4242,
    url="http://127.0.0.1:8080",
    supervised=True,
    model_path="/models/glm-00001-of-00007.gguf",
    model_bytes=50 * GIB,
    layout=ModelLayout(60, 128, 8, 3 << 20, 47 * GIB, 3 * GIB, 3 * GIB),
    memory=MemoryView("cgroup", 32 * GIB, backend_anonymous_bytes=4 * GIB, backend_swap_bytes=GIB),
    context=ContextView(4096, 4096, 8192, 1024),
    prompt_cache_mib=64,
    before_start="started with what fits (context 4096)",
    relief=("shrink prompt cache: freed 2.0 GiB",),
    state="answering",
    supervision=SupervisionView(
        by="process",
        who="moetuned, as its child",
        stage="ready",
        restart_seconds=40.4,
        restart_source="as its last load",
        restarts=RESTARTS,
        restarts_by_cause={"exit": 1, "relief": 1},
        record="/run/moetuned/backends/glm.json",
        log="/var/log/glm.log",
    ),
    launch=LaunchView(
        command=("llama-server", "-m", "/models/glm-00001-of-00007.gguf", "--api-key", "***"),
        slots=1,
        cache_type_k="q8_0",
        trained_context=131072,
        context_by_hand=True,
        changes=(
            Change("context", "4096", possible=True, how="by a restart, {context} in its command"),
            Change("slots", "1", possible=False, how="there is no {slots} in its command"),
        ),
    ),
)
FOUND = BackendView(
    name="llama-server-50411",
    kind="llama-server",
    verdict=Verdict("llama-server-50411", 8000.0),
    sentence="is doing something that cannot be seen; whether it thrashes cannot be told yet",
    discovered=True,
    model_unknown="its header cannot be read",
    state="unknown",
    supervision=SupervisionView(who="somebody else"),
)
ANSWER = BackendAnswer("glm", BackendDo.RESTART, True, NOW, 8192, 4096, 0, 60.0, 40.4, "as its last load")


def snapshot(*backends: BackendView) -> Snapshot:
    return Snapshot(1, NOW, 8000.0, "act", "observe", None, SelfView(812, "0.1.0", NOW - 7500), backends=backends)


class FakeDaemon:
    """What POST /v1/backend gets; `refusal`: what it answers."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        self.refusal: DaemonError | None = None

    def post(self, path: str, payload: dict[str, Any]) -> object:
        assert path == "/v1/backend"
        self.posted.append(payload)
        if self.refusal is not None:
            raise self.refusal
        answer = msgspec.structs.replace(ANSWER, do=BackendDo(payload["do"]), done=not payload.get("dry_run"))
        return msgspec.to_builtins(answer)
