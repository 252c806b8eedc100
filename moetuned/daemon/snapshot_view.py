"""Builds the Snapshot, what everybody is shown, from what the daemon holds."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moetuned.daemon import placeholders
from moetuned.daemon.launch_view import launch_view, supervision_view
from moetuned.daemon.manual_actions import is_stopped
from moetuned.daemon.pausing import HELD
from moetuned.daemon.supervisor import Supervisor
from moetuned.daemon.watched import Watched
from moetuned.decide import heat
from moetuned.decide.backend_state import state_word
from moetuned.decide.detector_paging import best_of
from moetuned.decide.prefill import prefill_view
from moetuned.decide.sentence import sentence
from moetuned.decide.supervision import Stage
from moetuned.schema.sample import Sample
from moetuned.schema.snapshot import BackendView, ContextView, MachineView, ResidencyView
from moetuned.schema.verdict import Phase

STARTING_SECONDS = 30.0
"""A backend that cannot be asked is called starting for this long."""


def backend_view(watched: Watched, now: float) -> BackendView:
    """One backend as it is at `now` (monotonic seconds)."""
    model = watched.model_identity
    signals = {} if watched.signals is None else dict(watched.signals.values)
    supervisor = watched.supervisor
    context = None if watched.config is None else watched.config.context
    supervised_context = None if supervisor is None else supervisor.state.plan.context_length
    if supervisor is not None and supervisor.state.next_plan is not None:
        supervised_context = supervisor.state.next_plan.context_length
    facts = watched.facts
    best = None if watched.signals is None else best_of(watched.detector.paging, watched.signals)
    return BackendView(
        name=watched.name,
        kind=watched.kind,
        verdict=watched.verdict,
        sentence=backend_sentence(watched, now),
        pid=None if watched.process is None else watched.process.pid,
        url=watched.url,
        supervised=supervisor is not None,
        discovered=watched.discovered,
        model_path=watched.model_path,
        model_bytes=None if model is None else model.size_bytes,
        layout=None if model is None else model.layout,
        model_unknown=watched.model_unknown if model is None else model.unknown,
        signals=signals,
        memory=msgspec.structs.replace(
            watched.memory,
            kv_cache_bytes=facts.kv_cache_bytes,
            backend_start_bytes=watched.own_bytes_when_ready,
        ),
        residency=_residency(watched, now),
        context=ContextView(
            now=watched.context_now(),
            wanted=supervised_context,
            preferred=None if supervisor is None or context is None else context.preferred,
            minimum=None if supervisor is None or context is None else context.minimum,
        ),
        warm=watched.warm,
        protect=watched.protect,
        prompting=watched.prompting,
        prompt_cache_mib=watched.prompt_cache_mib(),
        restarts=0 if supervisor is None else supervisor.state.restarts,
        would_do=watched.would_do,
        relief=watched.relief_reports,
        grow_back=watched.grow_back,
        before_start=None if supervisor is None else supervisor.before_start,
        cgroup=watched.cgroup.directory,
        neighbours=watched.neighbours,
        devices=watched.devices,
        learning=_learning(watched),
        prefill=prefill_view(watched.detector.prefill, facts),
        state=_state(watched),
        supervision=supervision_view(watched),
        launch=launch_view(watched),
        best_tokens_per_second=None if best is None else best.tokens_per_second,
    )


def _is_new(watched: Watched) -> bool:
    """Whether its process was found after the last look, whose "no process" is of before."""
    process = watched.process
    if process is None or watched.supervisor is not None or watched.verdict.phase is not Phase.ABSENT:
        return False
    return watched.detector.phase.process != (process.pid, process.start_ticks)


def _state(watched: Watched) -> str:
    if _is_new(watched):
        return "unknown"
    state = None if watched.supervisor is None else watched.supervisor.state
    known = placeholders.unknown(watched.supervisor) is None
    return state_word(watched.verdict, state, paused=is_stopped(watched), known=known)


def _learning(watched: Watched) -> str | None:
    known = None if watched.heat is None else watched.heat.state
    return heat.STAYED if known is not None and known.heat.stayed else None


def backends_sentence(backends: Iterable[Watched], now: float) -> str:
    """The same of all of them on one line."""
    said = (f"{watched.name} {backend_sentence(watched, now)}" for watched in backends)
    return "; ".join(said) or "no backend is running that moetuned knows"


def backend_sentence(watched: Watched, now: float) -> str:
    """What it does, for people, at `now` (monotonic seconds)."""
    signals = {} if watched.signals is None else watched.signals.values
    if watched.supervisor is not None and watched.supervisor.process is None:
        gone = watched.supervisor.absence
        if gone is not None:  # the last look may still have seen it at work
            return gone
    if is_stopped(watched) and (watched.supervisor is None or watched.supervisor.state.stage is not Stage.STOPPING):
        by_others = "is paused: its process is stopped (SIGSTOP or a debugger)"
        if watched.supervisor is None:
            return by_others
        resume = f"{by_others}; to let it go on: moetunectl backend resume {watched.name}"
        return watched.supervisor.paused or (HELD if watched.supervisor.held_lately else resume)
    prefill = prefill_view(watched.detector.prefill, watched.facts)
    said = sentence(watched.verdict, signals, watched.memory, now, _absence(watched, now), prefill)
    if watched.supervisor is None:
        return said
    waits = watched.supervisor.before_restart
    return said if waits is None else f"{waits}; {said}"


def _absence(watched: Watched, now: float) -> str | None:
    if watched.supervisor is not None:
        return watched.supervisor.absence or _starting(watched, watched.supervisor, now)
    if _is_new(watched):
        return "was found running and has not answered yet"
    if watched.config is not None and (watched.process is None or watched.verdict.phase is Phase.ABSENT):
        return "is not running, or no running process was recognised as it"
    return None


def _starting(watched: Watched, supervisor: Supervisor, now: float) -> str | None:
    """For one that has not been heard of yet, but not for ever."""
    verdict = watched.verdict
    if supervisor.state.stage == Stage.LOADING and verdict.phase == Phase.ABSENT:
        return "is being started"
    if supervisor.state.stage != Stage.LOADING or verdict.phase != Phase.UNKNOWN:
        return None
    if verdict.phase_since is not None and now - verdict.phase_since > STARTING_SECONDS:
        return None
    return "was found running and has not answered yet" if supervisor.adopted else "is starting"


def _residency(watched: Watched, now: float) -> ResidencyView:
    seen = watched.residency
    if seen is None or watched.residency_at is None:
        return ResidencyView(unknown=watched.residency_unknown)
    model = watched.model_identity
    # Pages are counted whole; the last one of a file seldom is.
    resident = seen.resident_bytes if model is None else min(seen.resident_bytes, model.size_bytes)
    return ResidencyView(
        resident_bytes=resident,
        expert_bytes=seen.expert_bytes,
        other_bytes=seen.other_bytes,
        age_seconds=round(now - watched.residency_at, 1),
    )


def machine_view(window: list[Sample]) -> MachineView:
    """The machine at the last sample; stall shares over the last two."""
    if not window:
        return MachineView()
    meminfo = window[-1].machine.meminfo
    view = MachineView() if meminfo is None else MachineView(
        memory_bytes=meminfo.total_bytes,
        available_bytes=meminfo.available_bytes,
        swap_bytes=meminfo.swap_total_bytes,
        swap_free_bytes=meminfo.swap_free_bytes,
    )  # fmt: skip
    if len(window) < 2:
        return view
    return msgspec.structs.replace(
        view,
        stall_memory_some_ratio=_stall(window[-2], window[-1], "pressure_memory"),
        stall_io_some_ratio=_stall(window[-2], window[-1], "pressure_io"),
    )


def _stall(before: Sample, now: Sample, name: str) -> float | None:
    first, last = getattr(before.machine, name), getattr(now.machine, name)
    if first is None or last is None or first.some_total_us is None or last.some_total_us is None:
        return None
    elapsed_us = (now.at_seconds - before.at_seconds) * 1e6
    stalled = last.some_total_us - first.some_total_us
    return None if elapsed_us <= 0 or stalled < 0 else min(1.0, stalled / elapsed_us)
