"""Life of a backend that another manager starts and ends: moetuned follows it and may ask for a restart with other values.

Pure, on the state of `decide.supervision`. The manager decides whether one that ended is started again, and sees to it that it never
runs twice; one that its owner stopped stays stopped.
"""

from __future__ import annotations

import msgspec

from moetuned.decide.supervision import Ask, Kill, LaunchPlan, Moved, Note, Say, Stage, Supervision
from moetuned.schema.event import EventName
from moetuned.schema.units import format_duration

APPEAR_SECONDS = 120.0
"""After a restart was asked for and the old process has ended, a new one must appear within this time (systemd gives a unit 90 s to stop)."""

_replace = msgspec.structs.replace


def appeared(state: Supervision, plan: LaunchPlan | None = None) -> Supervision:
    """A process of it was found that is not the one before. `plan`: what it runs with; None: as asked for, or not known."""
    state = _replace(state, stage=Stage.LOADING, kill_at=None, retry_at=None)
    if state.next_plan is not None:
        state = _replace(state, plan=state.next_plan, next_plan=None, restarts=state.restarts + 1)
    return state if plan is None else _replace(state, plan=plan)


def ended(state: Supervision, how: str, now: float, manager: str, *, by_owner: bool = False) -> Moved:
    """Its process ended; `how` is the end of the sentence "NAME …". `by_owner`: somebody wanted that, so nobody is told."""
    if state.stage is Stage.STOPPING:
        # Only now the time in which the next one must appear begins.
        return _replace(state, kill_at=None, retry_at=now + APPEAR_SECONDS), ()
    if state.stage not in (Stage.LOADING, Stage.READY):
        return state, ()
    state = _replace(state, stage=Stage.STOPPED, restart_began=None, kill_at=None, retry_at=None)
    if by_owner:
        return state, (Note(f"{state.backend} {how}; its owner stopped it, so it is left stopped"),)
    timing = state.timing
    exits = (*(at for at in state.exits if now - at < timing.breaker_seconds), now)
    message = f"{state.backend} {how}; {manager} decides whether it is started again"
    told: Say | Note = Note(message) if state.down else Say(EventName.BACKEND_DOWN, message)
    if len(exits) == timing.breaker_exits:
        often = f"{len(exits)} times within {format_duration(timing.breaker_seconds)}"
        told = Say(
            EventName.BACKEND_DOWN, f"{state.backend} {how}, {often}: read its log; {manager} goes on starting it"
        )
    return _replace(state, exits=exits, down=True), (told,)


def restart(state: Supervision, plan: LaunchPlan, now: float, *, hurry: bool = True) -> Moved:
    """Have it restarted with `plan`; nothing while that is under way already. `hurry`: memory runs out."""
    if state.stage is Stage.STOPPING:
        return state, ()
    patience = state.timing.restart_seconds if hurry else state.timing.terminate_seconds
    running = state.stage in (Stage.LOADING, Stage.READY)
    state = _replace(
        state,
        stage=Stage.STOPPING,
        next_plan=plan,
        restart_began=now,
        kill_at=now + patience if running else None,
        retry_at=None if running else now + APPEAR_SECONDS,
    )
    return state, (Ask(plan),)


def refused(state: Supervision, why: str, *, running: bool) -> Moved:
    """The manager did not do it, `why` is a sentence. `running`: the process from before still runs."""
    if state.stage is not Stage.STOPPING:
        return state, ()
    stage = Stage.READY if running else Stage.STOPPED
    state = _replace(
        state, stage=stage, next_plan=None, kill_at=None, retry_at=None, restart_began=None, down=not running
    )
    message = f"{state.backend} could not be restarted: {why}"
    return state, (Say(EventName.RELIEF_EXHAUSTED if running else EventName.BACKEND_DOWN, message),)


def tick(state: Supervision, now: float, manager: str) -> Moved:
    """Time passed: kill what does not end, say so when none appears."""
    if state.stage is not Stage.STOPPING:
        return state, ()
    if state.kill_at is not None and now >= state.kill_at:
        return _replace(state, kill_at=now + state.timing.terminate_seconds), (Kill(),)
    if state.retry_at is not None and now >= state.retry_at:
        return refused(
            state,
            f"{manager} ended it and did not start it again within {format_duration(APPEAR_SECONDS)}",
            running=False,
        )
    return state, ()
