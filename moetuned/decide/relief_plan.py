"""What relief would do for a backend at this moment, and why: for people who ask, as `moetunectl relief plan` shows it."""

from __future__ import annotations

from moetuned.decide import relief
from moetuned.decide.relief_ladder import ReliefFacts
from moetuned.schema.relief import ReliefPlan
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.units import format_bytes
from moetuned.schema.verdict import Paging, Verdict


def relief_plan(
    state: relief.ReliefState,
    verdict: Verdict,
    memory: MemoryView,
    facts: ReliefFacts,
    settings: relief.ReliefSettings,
    now: float,
    reports: tuple[str, ...] = (),
) -> ReliefPlan:
    """The plan at `now` (monotonic seconds). Changes nothing: `state` is only looked at."""
    found = relief.ladder(state, verdict.backend, memory, facts, settings, now)
    plan = None if found is None else found.restart
    return ReliefPlan(
        backend=verdict.backend,
        mode="act" if settings.act else "observe",
        memory=verdict.memory.value,
        decision=_decision(state, verdict, memory, facts, settings, now),
        headroom_bytes=memory.headroom_bytes,
        near_headroom_bytes=settings.near_headroom_bytes,
        target_headroom_bytes=settings.target_headroom_bytes,
        missing_bytes=None if found is None else found.missing_bytes,
        steps=() if found is None else found.steps,
        frees_bytes=None if plan is None else plan.frees_bytes,
        restart=plan is not None,
        restart_seconds=facts.restart_seconds,
        restart_source=facts.restart_source,
        reports=reports,
    )


def _decision(
    state: relief.ReliefState,
    verdict: Verdict,
    memory: MemoryView,
    facts: ReliefFacts,
    settings: relief.ReliefSettings,
    now: float,
) -> str:
    if memory.headroom_bytes is None:
        return f"nothing: the headroom is not known ({memory.unknown or 'nothing was read yet'})"
    left = format_bytes(memory.headroom_bytes)
    if verdict.memory not in relief.NEAR:
        said = f"nothing: memory is {verdict.memory.value}, {left} are left (near its limit below {format_bytes(settings.near_headroom_bytes)})"
        if verdict.paging is Paging.THRASHING:
            said += "; relief acts near the limit, and not on a thrash: what a restart with less would leave to the page cache is said below"
        return said
    if facts.draining:
        return "its restart waits for requests to end; it is called off if memory is well before that"
    if state.restarting:
        return "it is being restarted to free memory"
    if not facts.ready:
        return "nothing: the backend is not ready"
    decided = relief.step(state, verdict, memory, facts, settings, now)
    parts = [f"{name.value.replace('_', ' ')} now" for name in decided.own]
    if decided.restart is not None:
        parts.append(f"restart it now: {decided.restart.reason}")
    parts += decided.would_do
    if decided.exhausted is not None:
        parts.append(f"nothing: {decided.exhausted}")
    if not parts and (decided.state.exhausted or state.exhausted):
        parts.append("nothing: no step is left that would free enough memory")
    return "; ".join(parts) or "nothing: what was done last is waited for, or no memory is missing"
