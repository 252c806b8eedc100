"""What the daemon does for a backend's model: reads its header, looks at its residency, warms it."""

from __future__ import annotations

import logging
import os
import selectors
import time
from collections.abc import Callable, Sequence

import msgspec

from moetuned.daemon.heat_keeper import HeatKeeper
from moetuned.daemon.loop import Loop
from moetuned.daemon.prompting import Prompting
from moetuned.daemon.protecting import Protecting
from moetuned.daemon.settings import Settings
from moetuned.daemon.turned_off import cannot
from moetuned.daemon.watched import Watched
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide import warm_plan
from moetuned.decide.warm_room import backend_budget_bytes, free_under, taken
from moetuned.gguf.experts import ExpertMap, embedding_ranges, expert_ranges, other_ranges
from moetuned.gguf.header import GgufError
from moetuned.gguf.kv_cache import kv_bytes_per_token
from moetuned.host import block_devices
from moetuned.host.clock import Clock
from moetuned.host.model_files import ModelFile, ModelFileError, read_model
from moetuned.host.page_cache import ResidencyScan
from moetuned.host.spawn import StartError
from moetuned.host.warming import Warming, warm_in_cgroup
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.capability import Action
from moetuned.schema.sample import RawResidency
from moetuned.schema.snapshot import WarmView
from moetuned.schema.verdict import MemoryState, Phase

log = logging.getLogger(__name__)

SCAN_PIECE_SECONDS = 0.005
SCAN_PAUSE_SECONDS = 0.02
SCAN_CPU_SHARE = 0.02
"""Scans of residency take at most this share of a core on average: a large model is looked at less often."""
BUSY_READ_BYTES_PER_SECOND = 8e6
"""A backend that answers and reads more than this needs the disk more than warming does."""


REPLACED = "its file was replaced or written since the backend opened it; the backend goes on with what it opened"


class _Read(msgspec.Struct, frozen=True):
    """A model as a worker read it; `model` None: it is the one that is known already."""

    model: ModelFile | None
    devices: block_devices.FileDevices
    stamp: object


class _Scanned(msgspec.Struct, frozen=True):
    """A residency scan; `unknown` says why `result` is None."""

    result: RawResidency | None
    unknown: str | None
    cpu_seconds: float


class ModelCare:
    """Does the slow part of each in a worker or a process of its own. Belongs to the loop's thread."""

    def __init__(self, loop: Loop, clock: Clock, workers: Workers, heat: HeatKeeper | None = None) -> None:
        """`heat` None: what is learned of the use of experts is not kept."""
        self._loop = loop
        self._clock = clock
        self._workers = workers
        self._heat = heat or HeatKeeper(clock, workers, None)
        self._protecting = Protecting(loop, clock)
        self._prompting = Prompting(loop, workers)

    def learn_model(self, watched: Watched, path: str | None) -> None:
        """Read the header of the model at `path`, unless the files there are what is known already."""
        if path is None:
            if watched.model is None:
                watched.model_unknown = "its command line names no model that can be found"
            return
        if path != watched.model_path:
            watched.model_path, watched.model, watched.model_stamp = path, None, None
            watched.model_unknown = "its header is being read"
        stamp = watched.model_stamp
        known = () if watched.model is None else watched.model.identity.paths

        def done(read: _Read | None, error: BaseException | None) -> None:
            if watched.model_path != path:
                self.learn_model(watched, watched.model_path)
            else:
                self._learned(watched, path, read, error)

        self._workers.submit(Lane.WORK, f"reading the model of {watched.key}", lambda: _read(path, known, stamp), done)

    def _learned(self, watched: Watched, path: str, read: _Read | None, error: BaseException | None) -> None:
        if read is None:
            watched.model, watched.model_stamp = None, None
            watched.model_unknown = error.sentence if isinstance(error, ModelFileError) else f"cannot read it: {error}"
            log.warning("%s: model %s: %s", watched.name, path, watched.model_unknown)
            return
        watched.disks = read.devices.names
        if read.model is not None:
            watched.model, watched.model_stamp, watched.model_unknown = read.model, read.stamp, None
            watched.residency, watched.residency_at, watched.fresh_residency = None, None, None
            watched.next_residency = self._clock.monotonic()

    def want_warm(self, watched: Watched, why: str) -> None:
        """Warm the model as soon as its present residency is known."""
        watched.warm_wanted = why
        if watched.warming is None:
            watched.warm = WarmView("waiting", detail=why)
        watched.residency_at, watched.fresh_residency = None, None
        watched.residency_since = watched.next_residency = self._clock.monotonic()
        self._heat.renew(watched)

    def want_prompts(self, watched: Watched, settings: Settings) -> None:
        """Send the prompts that the config names once the model is warm."""
        self._prompting.want(watched, settings)

    def tick(self, watched: Watched, settings: Settings, now: float) -> None:
        """Start what is due, stop what must not go on."""
        may_warm = settings.warm_enabled and watched.supervisor is not None
        refused = cannot(watched, settings, Action.PAGE_OUT) if may_warm else None
        self._heat.tick(watched, now, may_page_out=may_warm and refused is None)
        if watched.process is not None and now >= watched.next_residency:
            watched.next_residency = now + settings.residency_seconds
            self._scan(watched)
        if watched.warming is not None:
            self._guard(watched)
        elif watched.warm_wanted is not None:
            self._begin(watched, settings)
        self._protecting.tick(watched, settings, now)
        self._prompting.tick(watched, settings, now)
        _note_owed(watched)

    def interrupt_warming(self, watched: Watched) -> None:
        """Stop the process that warms; what is left is warmed once memory is well."""
        if watched.warming is not None and watched.warm_wanted is None:
            self.want_warm(watched, "it was interrupted")
            watched.warming.stop()

    def release_protection(self, watched: Watched) -> None:
        """Let go of what is locked of its model, because memory is short."""
        self._protecting.release(watched, "relief frees memory")

    def end(self, watched: Watched) -> None:
        """Warm no more, lock nothing, send no prompts; what was learned is kept."""
        self._heat.keep(watched)
        self._protecting.end(watched)
        self._prompting.end(watched)
        watched.warm_wanted = None
        if watched.warm.going_on:
            watched.warm = WarmView("off", detail="stopped")
        if watched.warming is not None:
            self._loop.remove(watched.warming.fileno())
            watched.warming.kill()
            watched.warming = None

    def _scan(self, watched: Watched) -> None:
        model, process = watched.model, watched.process
        if model is None:
            watched.residency_unknown = watched.model_unknown
            return
        paths, experts, stamp = model.identity.paths, model.experts, watched.model_stamp
        began = self._clock.monotonic()

        def done(scanned: _Scanned | None, error: BaseException | None) -> None:
            if watched.process != process or watched.model is not model:
                return
            if began < watched.residency_since:
                # The scan that was due meanwhile could not start while this one ran.
                watched.next_residency = self._clock.monotonic()
                return
            if scanned is not None:
                pause = scanned.cpu_seconds / SCAN_CPU_SHARE
                watched.next_residency = max(watched.next_residency, self._clock.monotonic() + pause)
            if scanned is not None and scanned.result is not None:
                watched.fresh_residency, watched.residency_unknown = scanned.result, None
                return
            watched.residency, watched.residency_at = None, None
            watched.residency_unknown = (scanned and scanned.unknown) or f"cannot be looked at: {error}"
            if watched.warm_wanted is not None:
                watched.warm = WarmView("waiting", detail=f"residency is unknown: {watched.residency_unknown}")

        self._workers.submit(
            Lane.WORK, f"looking at the residency of {watched.key}", lambda: _scan_all(paths, experts, stamp), done
        )

    def _begin(self, watched: Watched, settings: Settings) -> None:
        """Warm now if everything is known that the plan needs, and nothing speaks against it."""
        model, residency = watched.model, watched.residency
        if watched.ready_at is None or watched.residency_at is None or model is None or model.experts is None:
            return
        if residency is None or not watched.limits or self._heat.is_opening(watched):
            return
        if (refused := cannot(watched, settings, Action.WARM)) is not None:
            watched.warm_wanted = None
            watched.warm = WarmView("off", detail=refused)
            return
        if cannot(watched, settings, Action.PAGE_OUT) is not None:
            self._heat.note_stays(watched)
        against = _against_warming(watched)
        if against is not None:
            watched.warm = msgspec.structs.replace(watched.warm, state="paused", detail=f"waits: {against}")
            return
        why, watched.warm_wanted = watched.warm_wanted, None
        budget = backend_budget_bytes(watched.limits, residency.resident_bytes, settings.warm_budget_bytes)
        watched.warming_fills, watched.warming_stopped = free_under(watched.limits), None
        plan = warm_plan.plan(
            other_ranges(model.experts),
            expert_ranges(model.experts),
            embedding_ranges(model.experts),
            model.identity.size_bytes,
            budget,
            residency,
            self._heat.use(watched),
        )
        if plan.total_bytes == 0:
            watched.warm = WarmView("done", detail=plan.reason, ended_wall_seconds=self._clock.wall())
            return
        log.info("%s: warming its model, because %s: %s", watched.name, why, plan.reason)

        def paged_out(left: bool) -> None:
            if not watched.warm.going_on:
                return  # It was ended meanwhile.
            if left:
                self._start(watched, model, plan, settings)
            elif watched.warm_wanted is None:
                # There is less room than the plan says: the next one counts on none from paging out.
                self.want_warm(watched, why or "")

        if plan.page_out and self._heat.page_out(watched, plan.page_out, paged_out):
            watched.warm = WarmView("running", 0, plan.total_bytes, "paging out what nobody used, then " + plan.reason)
        else:
            self._start(watched, model, plan, settings)

    def _start(self, watched: Watched, model: ModelFile, plan: warm_plan.WarmPlan, settings: Settings) -> None:
        if watched.process is None or watched.warming is not None:
            return
        try:
            warming = warm_in_cgroup(
                model.identity.paths,
                plan.ranges,
                plan.twice,
                cgroup_directory=watched.cgroup.directory,
                rate_bytes_per_second=settings.warm_rate_bytes_per_second,
                backend=watched.process,
            )
        except StartError as error:
            watched.warm = WarmView("failed", detail=str(error), ended_wall_seconds=self._clock.wall())
            return
        watched.warming = warming
        self._heat.note_warming(watched)
        watched.warm = WarmView("running", 0, warming.progress.goal_bytes, plan.reason)
        self._loop.add(warming.fileno(), selectors.EVENT_READ, self._follower(watched, warming, plan.reason))

    def _follower(self, watched: Watched, warming: Warming, reason: str) -> Callable[[int], None]:
        descriptor = warming.fileno()

        def follow(_events: int) -> None:
            progress = warming.advance()
            detail = progress.error or progress.detail or reason
            if progress.going_on:
                watched.warm = WarmView(
                    progress.state, progress.done_bytes, progress.goal_bytes, detail, progress.eta_seconds
                )
                return
            self._loop.remove(descriptor)
            watched.warming = None
            self._heat.note_warming(watched)
            watched.next_residency = self._clock.monotonic()
            log.info("%s: warming %s: %s", watched.name, progress.state, detail)
            state = {"stopped": "off" if watched.warm_wanted is None else "paused"}.get(progress.state, progress.state)
            if progress.state == "stopped" and watched.warming_stopped is not None and watched.warm_wanted is None:
                state, detail = "failed", watched.warming_stopped
            ended = self._clock.wall() if state in ("done", "failed") else None
            watched.warm = WarmView(state, progress.done_bytes, progress.goal_bytes, detail, ended_wall_seconds=ended)
            _note_owed(watched)

        return follow

    def _guard(self, watched: Watched) -> None:
        """Warming must not push memory to its limit, nor anything out of it. While the backend reads, the process pauses by itself."""
        assert watched.warming is not None
        # After paging out there is free memory under the tightest limit, too: the plan leaves a reserve there.
        watched.warming_fills |= free_under(watched.limits[:1])
        against = _memory_against(watched)
        if against is not None and watched.warm_wanted is None:
            log.info("%s: warming pauses: %s", watched.name, against)
            self.interrupt_warming(watched)
        elif watched.warm_wanted is None and watched.warming_stopped is None:
            watched.warming_stopped = taken(watched.limits, watched.warming_fills)
            if watched.warming_stopped is not None:
                log.info("%s: warming ends: %s", watched.name, watched.warming_stopped)
                watched.warming.stop()


def _note_owed(watched: Watched) -> None:
    """Record whether warming goes on or has yet to: a daemon that dies meanwhile owes it, and the next one does it."""
    if watched.supervisor is not None and watched.ready_at is not None:
        watched.supervisor.note_warm_owed(watched.warm_wanted is not None or watched.warm.going_on)


def _against_warming(watched: Watched) -> str | None:
    """Why the model is better not warmed at this moment; None when it may be."""
    against = _memory_against(watched)
    if against is not None:
        return against
    reads = 0.0 if watched.signals is None else watched.signals.get("process_read_bytes_per_second") or 0.0
    if watched.verdict.phase in (Phase.PREFILL, Phase.DECODE) and reads > BUSY_READ_BYTES_PER_SECOND:
        return "the backend itself reads"
    return None


def _memory_against(watched: Watched) -> str | None:
    if watched.verdict.memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
        return "memory is near its limit"
    return None


def kv_cost(watched: Watched) -> int | None:
    """Bytes of KV cache a token of context costs with the backend's own cache types; None when either is unknown."""
    known = watched.kv_cost
    if known is None or known[0] is not watched.model or known[1] is not watched.description:
        known = (watched.model, watched.description, _kv_cost(watched.model, watched.description))
        watched.kv_cost = known
    return known[2]


def _kv_cost(model: ModelFile | None, said: BackendDescription | None) -> int | None:
    if model is None or said is None:
        return None
    try:
        # What a command line does not say is llama.cpp's default.
        return kv_bytes_per_token(model.headers[0].metadata, said.cache_type_k or "f16", said.cache_type_v or "f16")
    except GgufError:
        return None


def _read(path: str, known: Sequence[str], stamp: object) -> _Read:
    """Raises ModelFileError."""
    devices = block_devices.under_file(path)
    if stamp is not None and stamp == _stamp(known):
        return _Read(None, devices, stamp)
    model = read_model(path)
    return _Read(model, devices, _stamp(model.identity.paths))


def _stamp(paths: Sequence[str]) -> object:
    """What changes when a file is replaced or written; None when one cannot be looked at."""
    try:
        return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for one in map(os.stat, paths))
    except OSError:
        return None


def _scan_all(paths: Sequence[str], experts: ExpertMap | None, stamp: object) -> _Scanned:
    """All of a scan, with pauses, so that it takes a fifth of one core at most while it runs."""
    if stamp is not None and _stamp(paths) != stamp:
        return _Scanned(None, REPLACED, 0.0)
    began = time.thread_time()
    scan = ResidencyScan(paths, None if experts is None else expert_ranges(experts))
    while not scan.advance(SCAN_PIECE_SECONDS):
        time.sleep(SCAN_PAUSE_SECONDS)
    return _Scanned(scan.result, scan.unknown, time.thread_time() - began)
