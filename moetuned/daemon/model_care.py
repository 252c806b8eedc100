"""What the daemon does for a backend's model: reads its header, looks at its residency, warms it."""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Callable

from moetuned.daemon.loop import Loop
from moetuned.daemon.settings import Settings
from moetuned.daemon.watched import Watched
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide import warm_plan
from moetuned.gguf.experts import embedding_ranges, expert_ranges, other_ranges
from moetuned.gguf.header import GgufError
from moetuned.gguf.kv_cache import kv_bytes_per_token
from moetuned.host import block_devices
from moetuned.host.clock import Clock
from moetuned.host.model_files import ModelFile, ModelFileError, read_model
from moetuned.host.page_cache import ResidencyScan
from moetuned.host.spawn import StartError
from moetuned.host.warming import Warming, warm_in_cgroup
from moetuned.schema.snapshot import WarmView
from moetuned.schema.verdict import MemoryState, Phase

log = logging.getLogger(__name__)

_SCAN_PIECE_SECONDS = 0.005
_SCAN_PAUSE_SECONDS = 0.02


class ModelCare:
    """Does the slow part of each in a worker or a process of its own. Belongs to the loop's thread."""

    def __init__(self, loop: Loop, clock: Clock, workers: Workers) -> None:
        self._loop = loop
        self._clock = clock
        self._workers = workers

    def learn_model(self, watched: Watched, path: str | None) -> None:
        """Read the header of the model at `path`, unless that is what is known already."""
        if path is None:
            if watched.model is None:
                watched.model_unknown = "its command line names no model that can be found"
            return
        if path == watched.model_path and watched.model is not None:
            return
        watched.model_path = path

        def work() -> tuple[ModelFile, block_devices.FileDevices]:
            return read_model(path), block_devices.under_file(path)

        def done(result: tuple[ModelFile, block_devices.FileDevices] | None, error: BaseException | None) -> None:
            if watched.model_path != path:
                return
            if result is None:
                watched.model = None
                watched.model_unknown = (
                    error.sentence if isinstance(error, ModelFileError) else f"cannot read it: {error}"
                )
                log.warning("%s: model %s: %s", watched.name, path, watched.model_unknown)
                return
            watched.model, devices = result
            watched.disks = devices.names
            watched.kv_bytes_per_token = _kv_cost(watched)
            watched.next_residency = self._clock.monotonic()

        self._workers.submit(Lane.WORK, f"model {watched.name}", work, done)

    def want_warm(self, watched: Watched, why: str) -> None:
        """Warm the model as soon as its present residency is known."""
        watched.warm_wanted = why
        watched.warm = WarmView("waiting", detail=why)
        watched.residency_at = None
        watched.next_residency = self._clock.monotonic()

    def tick(self, watched: Watched, settings: Settings, now: float) -> None:
        """Start what is due, stop what must not go on."""
        if watched.process is not None and now >= watched.next_residency:
            watched.next_residency = now + settings.residency_seconds
            self._scan(watched)
        if watched.warming is not None:
            self._guard(watched)
        elif watched.warm_wanted is not None:
            self._begin(watched, settings)

    def end(self, watched: Watched) -> None:
        """Warm no more."""
        watched.warm_wanted = None
        if watched.warming is not None:
            self._loop.remove(watched.warming.fileno())
            watched.warming.kill()
            watched.warming = None
            watched.warm = WarmView("off", detail="stopped")

    def _scan(self, watched: Watched) -> None:
        model = watched.model
        if model is None:
            watched.residency_unknown = watched.model_unknown
            return
        process = watched.process
        experts = None if model.experts is None else expert_ranges(model.experts)
        scan = ResidencyScan(model.identity.paths, experts)

        def done(_result: object, error: BaseException | None) -> None:
            if watched.process != process or watched.model is not model:
                return
            if error is None and scan.result is not None:
                watched.fresh_residency, watched.residency_unknown = scan.result, None
            else:
                watched.residency, watched.residency_at = None, None
                watched.residency_unknown = scan.unknown or f"cannot be looked at: {error}"
                if watched.warm_wanted is not None:
                    watched.warm = WarmView("waiting", detail=f"residency is unknown: {watched.residency_unknown}")

        self._workers.submit(Lane.WORK, f"residency {watched.name}", lambda: _whole(scan), done)

    def _begin(self, watched: Watched, settings: Settings) -> None:
        """Warm now if everything is known that the plan needs."""
        model, residency = watched.model, watched.residency
        if watched.ready_at is None or watched.residency_at is None or model is None or model.experts is None:
            return
        if residency is None or watched.memory.limit_bytes is None:
            return
        why, watched.warm_wanted = watched.warm_wanted, None
        budget = warm_plan.budget_bytes(watched.memory, residency.resident_bytes, settings.warm_budget_bytes)
        plan = warm_plan.plan(
            other_ranges(model.experts),
            expert_ranges(model.experts),
            embedding_ranges(model.experts),
            model.identity.size_bytes,
            budget,
            residency,
        )
        if plan.total_bytes == 0:
            watched.warm = WarmView("done", detail=plan.reason)
            return
        try:
            warming = warm_in_cgroup(
                model.identity.paths,
                plan.ranges,
                plan.twice,
                cgroup_directory=watched.cgroup.directory,
                rate_bytes_per_second=settings.warm_rate_bytes_per_second,
            )
        except StartError as error:
            watched.warm = WarmView("failed", detail=str(error))
            return
        log.info("%s: warming, because %s: %s", watched.name, why, plan.reason)
        watched.warming = warming
        watched.warm = WarmView("running", 0, warming.progress.goal_bytes, plan.reason)
        self._loop.add(warming.fileno(), selectors.EVENT_READ, self._follower(watched, warming, plan.reason))

    def _follower(self, watched: Watched, warming: Warming, reason: str) -> Callable[[int], None]:
        descriptor = warming.fileno()

        def follow(_events: int) -> None:
            progress = warming.advance()
            if progress.state != "running":
                self._loop.remove(descriptor)
                if watched.warming is warming:
                    watched.warming = None
                watched.next_residency = self._clock.monotonic()
                log.info("%s: warming %s: %s", watched.name, progress.state, progress.error or reason)
            state = "off" if progress.state == "stopped" else progress.state
            watched.warm = WarmView(state, progress.done_bytes, progress.goal_bytes, progress.error or reason)

        return follow

    def _guard(self, watched: Watched) -> None:
        """Warming must neither push memory to its limit nor take the disk from a request."""
        assert watched.warming is not None
        busy = watched.verdict.phase in (Phase.PREFILL, Phase.DECODE)
        reads = 0.0 if watched.signals is None else watched.signals.get("process_read_bytes_per_second") or 0.0
        if watched.verdict.memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
            why = "memory is near its limit"
        elif busy and reads > 8e6:
            why = "the backend itself reads"
        else:
            return
        log.info("%s: warming stops: %s", watched.name, why)
        watched.warming.stop()


def _whole(scan: ResidencyScan) -> None:
    """All of a scan, with pauses, so that it takes a fifth of one core at most while it runs."""
    while not scan.advance(_SCAN_PIECE_SECONDS):
        time.sleep(_SCAN_PAUSE_SECONDS)


def _kv_cost(watched: Watched) -> int | None:
    """Bytes of KV cache a token of context costs with the backend's own cache types; None when unknown."""
    model, said = watched.model, watched.description
    if model is None:
        return None
    type_k = None if said is None else said.cache_type_k
    type_v = None if said is None else said.cache_type_v
    try:
        return kv_bytes_per_token(model.headers[0].metadata, type_k or "f16", type_v or "f16")
    except GgufError:
        return None
