"""Giving back to one backend what relief took: what is known of it, the decision, and carrying it out."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moetuned.daemon.relieving import limits_of, report, restart_seconds
from moetuned.daemon.settings import Settings, return_margin_bytes
from moetuned.daemon.supervisor import Supervisor
from moetuned.daemon.watched import Watched
from moetuned.decide import context_return
from moetuned.decide.kv_choices import growth_bytes, plan_bytes
from moetuned.decide.launch_command import preferred_plan
from moetuned.decide.launch_facts import prompt_cache_mib
from moetuned.decide.supervision import LaunchPlan, Stage
from moetuned.gguf.metadata import Metadata
from moetuned.host.service import VALUES
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.supervision import RestartCause
from moetuned.schema.units import format_duration
from moetuned.schema.verdict import MemoryState, Phase

SAY_SECONDS = 10.0
"""For one that is idle to say so once more: only a restart that is not made at once saves conversations."""
_MOST_KNOWN = 256


def give_back(watched: Watched, settings: Settings, now: float) -> None:
    """Decide for this backend at `now` and do it. Nothing was ever taken: nothing is looked at."""
    supervisor = watched.supervisor
    if supervisor is None or not supervisor.relief_restarts or watched.memory.limit_bytes is None:
        watched.grow_back = None
        return
    state = msgspec.structs.replace(watched.returning, blocked=supervisor.return_blocked)
    decided = context_return.step(
        state, _facts(watched, supervisor), _settings(watched, settings, watched.memory.limit_bytes), now
    )
    _remember(watched, supervisor, decided.state)
    watched.grow_back = decided.text
    plan = decided.plan
    if plan is None:
        return
    _start(watched, supervisor, plan, now)


def reconsider(watched: Watched) -> None:
    """A restart that gives something back and waits is not made when somebody asks something meanwhile, or memory is not well any more."""
    supervisor = watched.supervisor
    if supervisor is not None:
        _note_obstacle(watched, supervisor)
    if supervisor is None or supervisor.waits_because is not RestartCause.RETURN:
        return
    if watched.verdict.memory is MemoryState.OK and watched.verdict.phase is Phase.IDLE:
        return
    supervisor.call_off()
    report(watched, "did not give it back: it is asked something, or memory is not well any more")
    _remember(watched, supervisor, context_return.ReturnState(blocked=watched.returning.blocked))


def _note_obstacle(watched: Watched, supervisor: Supervisor) -> None:
    """A return that was not made because it could not have started again counts for nothing."""
    found, at = None if supervisor.check is None else supervisor.check.obstructed, watched.returning.returned_at
    if found is not None and found.cause is RestartCause.RETURN and at is not None and found.at >= at:
        report(watched, f"did not give it back: {found.why}")
        _remember(watched, supervisor, context_return.ReturnState(blocked=watched.returning.blocked))


def allow(watched: Watched) -> None:
    """A person wants it, or another config: what a return led to before speaks no longer against the next."""
    if watched.supervisor is not None and watched.returning.blocked is not None:
        _remember(watched, watched.supervisor, context_return.allowed(watched.returning))


def restore(watched: Watched, supervisor: Supervisor) -> None:
    """Go on from what an earlier daemon recorded in this boot."""
    watched.returning = context_return.ReturnState(
        returned_at=supervisor.returned_at, blocked=supervisor.return_blocked
    )


def _start(watched: Watched, supervisor: Supervisor, plan: LaunchPlan, now: float) -> None:
    what = " and ".join(context_return.changes(supervisor.state.plan, plan))
    seconds, source = restart_seconds(watched)
    takes = f"how long that takes is unknown ({source})"
    if seconds is not None:
        takes = f"that takes about {format_duration(max(1.0, round(seconds)))} ({source})"
    why = f"memory has been ample for long and nobody asks it anything: gives back {what}; {takes}"
    report(watched, f"gave back: {what}", logged=True)
    _remember(watched, supervisor, context_return.returned(now))
    watched.grow_back = None
    supervisor.give_back(plan, why, seconds=SAY_SECONDS)


def _remember(watched: Watched, supervisor: Supervisor, state: context_return.ReturnState) -> None:
    watched.returning = state
    supervisor.note_return(state.returned_at, state.blocked)


def _settings(watched: Watched, settings: Settings, limit_bytes: int) -> context_return.ReturnSettings:
    target = limits_of(watched, settings).target_headroom_bytes
    allowed = settings.act and settings.grow_back
    return context_return.ReturnSettings(allowed, target, return_margin_bytes(settings, limit_bytes))


def _facts(watched: Watched, supervisor: Supervisor) -> context_return.ReturnFacts:
    phase, memory = watched.verdict.phase, watched.verdict.memory
    loads = supervisor.state.stage is not Stage.READY or watched.ready_at is None
    return context_return.ReturnFacts(
        # While it loads, memory says nothing of how it will be, but that it is near its limit.
        memory=MemoryState.UNKNOWN if loads and memory is MemoryState.OK else memory,
        headroom_bytes=watched.memory.headroom_bytes,
        idle=None if phase is Phase.UNKNOWN else phase is Phase.IDLE,
        against=_against(watched),
        now=supervisor.state.plan,
        wanted=_wanted(supervisor),
        cost=lambda plan: _cost(watched, plan),
        cache_left_bytes=_cache_left_bytes(watched, supervisor.state.plan),
    )


def _wanted(supervisor: Supervisor) -> LaunchPlan:
    """What the config wants, as far as a restart can set it."""
    now, wanted = supervisor.state.plan, preferred_plan(supervisor.config)
    if supervisor.chosen_context is not None:
        wanted = msgspec.structs.replace(wanted, context_length=supervisor.chosen_context)
    fields = {"context": "context_length"}
    kept = {
        fields.get(value, value): getattr(now, fields.get(value, value))
        for value in VALUES
        if not supervisor.sets(value)
    }
    return LaunchPlan(**{name: kept.get(name, getattr(wanted, name)) for name in LaunchPlan.__struct_fields__})


def _against(watched: Watched) -> str | None:
    supervisor = watched.supervisor
    if supervisor is not None and supervisor.paused is not None:
        return "it goes on"
    obstacle = None if supervisor is None or supervisor.check is None else supervisor.check.obstacle
    if obstacle is not None:
        return f"it could start again ({obstacle})"
    if watched.warm_wanted is not None or watched.warm.going_on:
        return "its model is warm"
    if watched.verdict.memory is not MemoryState.OK:
        return "memory is well"
    if watched.verdict.phase is not Phase.IDLE:
        return "it is idle"
    return None


def _cost(watched: Watched, plan: LaunchPlan) -> int | None:
    return _known(watched, plan, lambda metadata, said: plan_bytes(metadata, said, plan))


def _cache_left_bytes(watched: Watched, plan: LaunchPlan) -> int | None:
    """What the prompt cache and the checkpoints may still take of what they may take at most."""
    cache = prompt_cache_mib(watched.kind, watched.description, watched.prompt_cache_mib()) or 0
    if cache < 0:
        return None
    most = _known(watched, (plan, cache), lambda metadata, said: growth_bytes(metadata, said, plan, cache))
    own, when_ready = watched.own_bytes(), watched.own_bytes_when_ready
    grown = 0 if own is None or when_ready is None else max(0, own - when_ready)
    return None if most is None else max(0, most - grown)


def _known(
    watched: Watched, what: object, work_out: Callable[[Metadata, BackendDescription], int | None]
) -> int | None:
    """Worked out once for a model and a command line: each tick asks again."""
    model, said = watched.model, watched.description
    if model is None or said is None:
        return None
    of, found = watched.plan_bytes
    if of != (model.identity, said) or len(found) > _MOST_KNOWN:
        found = {}
        watched.plan_bytes = ((model.identity, said), found)
    if what not in found:
        found[what] = work_out(model.headers[0].metadata, said)
    return found[what]
