"""Life of a backend that another manager starts and ends: moetuned follows it and may ask for a restart with other values.

Pure, on the state of `decide.supervision` with `managed`. The manager decides whether one that ended is started again, and sees to it
that it never runs twice; one that its owner stopped stays stopped.
"""

from __future__ import annotations

import msgspec

from moetuned.decide import supervision as sv
from moetuned.decide.exit_cause import EVENT_OF, Cause
from moetuned.decide.supervision import UP, LaunchPlan, Moved, Note, Say, Stage, Supervision
from moetuned.schema.event import EventName
from moetuned.schema.units import format_duration

APPEAR_SECONDS = 120.0
"""After a restart was asked for and the old process has ended, a new one must appear within this time (systemd gives a unit 90 s to stop)."""

SETTLE_SECONDS = 15.0
"""After a restart was refused and the old process has ended, one that is started again as before must appear within this time; its manager
may say earlier that there is none. Who runs by a script is only looked for, every 5 s."""

STOPPED_MEANWHILE = "its owner stopped it meanwhile, so it is left stopped"

ASK_AGAIN_SECONDS = 0.5
"""While its manager prepares a restart, it is looked this often whether the old process may be killed yet."""

_replace = msgspec.structs.replace


def appeared(state: Supervision) -> Moved:
    """A process of it was found that is not the one before. After a restart that was refused it is one with the plan from before."""
    if state.refusal is not None:
        back = _replace(_gone(state, down=state.down), stage=Stage.LOADING, holds=state.holds)
        return back, (_failed(state, f"{state.refusal}; it was started again"),)
    state = _replace(state, stage=Stage.LOADING, kill_at=None, retry_at=None)
    if state.next_plan is None:
        return state, ()
    return _replace(state, plan=state.next_plan, next_plan=None, restarts=state.restarts + 1), ()


def goes_on(state: Supervision, plan: LaunchPlan, now: float, *, hurry: bool = True) -> Supervision:
    """Its manager is restarting it with this plan already, as an earlier daemon had asked. `hurry`: because memory ran out.

    Where the process from before has ended (the stage is stopped), the next one must appear in time, as in any restart.
    """
    if state.stage not in (Stage.STOPPED, Stage.LOADING, *UP):
        return state
    runs = state.stage is not Stage.STOPPED
    state = _replace(
        _gone(state, down=state.down), stage=Stage.STOPPING, next_plan=plan, restart_began=now, hurry=hurry
    )
    if not runs:
        return _replace(state, retry_at=now + APPEAR_SECONDS)
    return _replace(state, kill_at=now + state.timing.terminate_seconds)


def ended(
    state: Supervision,
    how: str,
    now: float,
    manager: str,
    *,
    by_owner: bool = False,
    goes_on: bool = False,
    cause: Cause = Cause.EXIT,
) -> Moved:
    """Its process ended; `how` is the end of the sentence "NAME …". `by_owner`: somebody wanted that, so nobody is told, but
    that a restart which had begun does not come to its end.

    `goes_on`: its manager is still at it, or has the next one running: it was not only stopped, or that is not known yet.
    """
    if state.stage is Stage.STOPPING:
        if state.refusal is not None:
            return state, ()
        # Only now the time in which the next one must appear begins.
        return _replace(state, kill_at=None, retry_at=now + APPEAR_SECONDS), ()
    if state.stage not in (Stage.LOADING, *UP):
        return state, ()
    restarted = state.restart_began is not None
    state = _gone(state, down=state.down)
    if by_owner:
        wanted = "somebody stops it or has it restarted" if goes_on else "its owner stopped it, so it is left stopped"
        message = f"{state.backend} {how}; {wanted}"
        return state, (Say(EventName.BACKEND_NOT_RESTARTED, message) if restarted else Note(message),)
    timing = state.timing
    exits = (*(at for at in state.exits if now - at < timing.breaker_seconds), now)
    message = f"{state.backend} {how}; {manager} decides whether it is started again"
    told: Say | Note = Note(message) if state.down and not restarted else Say(EVENT_OF[cause], message)
    if len(exits) == timing.breaker_exits:
        often = f"{len(exits)} times within {format_duration(timing.breaker_seconds)}"
        told = Say(EVENT_OF[cause], f"{state.backend} {how}, {often}: read its log; {manager} goes on starting it")
    return _replace(state, exits=exits, down=True), (told,)


def stays_away(state: Supervision, how: str | None, manager: str) -> Moved:
    """It ended because somebody has it restarted, which was told to nobody, and the next one does not run: that is told. `how`: as in `ended`."""
    if state.stage is not Stage.STOPPED or state.down:
        return state, ()
    what = "did not come back" if how is None else how
    message = f"{state.backend} {what}, after somebody had it restarted; {manager} decides whether it is started again"
    return _replace(state, down=True), (Say(EventName.BACKEND_DOWN, message),)


def overdue(manager: str) -> str:
    """That no new process appeared in time, a sentence."""
    return f"{manager} ended it and did not start it again within {format_duration(APPEAR_SECONDS)}"


def refused(state: Supervision, why: str, now: float, *, running: bool) -> Moved:
    """The manager did not do it, `why` is a sentence. `running`: the process from before still runs.

    Else it may be down, or be started again as it was: `appeared`, `absent` or `tick` says so.
    """
    if state.stage is not Stage.STOPPING:
        return state, ()
    if running:
        return _replace(_gone(state, down=state.down), stage=Stage.READY), (
            _failed(state, f"{why}; it runs as before"),
        )
    return _replace(state, kill_at=None, retry_at=now + SETTLE_SECONDS, refusal=why), ()


def absent(state: Supervision, *, by_owner: bool = False) -> Moved:
    """Its manager says that no process of it runs, and that none is being started: what became of a restart that it refused is known.

    `by_owner`: that is so because somebody wants it, which is the end of a restart that was not refused, too, and nobody's alarm.
    """
    if state.stage is not Stage.STOPPING or state.kill_at is not None or (state.refusal is None and not by_owner):
        return state, ()
    if by_owner:
        why = state.refusal or STOPPED_MEANWHILE
        message = f"{state.backend} could not be restarted: {why}"
        return _gone(state, down=state.down), (Say(EventName.BACKEND_NOT_RESTARTED, message),)
    message = f"{state.backend} could not be restarted: {state.refusal}; it does not run"
    return _gone(state, down=True), (Say(EventName.BACKEND_DOWN, message),)


def _failed(state: Supervision, how: str) -> Say:
    """How the restart under way came out, of one that is not down."""
    name = EventName.RELIEF_EXHAUSTED if state.hurry else EventName.BACKEND_NOT_RESTARTED
    return Say(name, f"{state.backend} could not be restarted: {how}")


def left_alone(state: Supervision) -> Supervision:
    """It is not followed any more, whether it runs or not."""
    return _gone(state, down=False)


def _gone(state: Supervision, *, down: bool) -> Supervision:
    """Stopped, with no restart under way."""
    state = _replace(
        state, stage=Stage.STOPPED, next_plan=None, kill_at=None, retry_at=None, restart_began=None, down=down
    )
    return _replace(
        state, drain_began=None, drain_until=None, stage_until=None, holds=False, busy=None, lost=0, refusal=None
    )


def answered(state: Supervision, now: float) -> Supervision:
    """Its manager says that the restart is done, or goes on by itself: the old process has so long to end."""
    if state.stage is not Stage.STOPPING or state.kill_at is None:
        return state
    return _replace(state, retry_at=now + state.timing.terminate_seconds)


def tick(state: Supervision, now: float, manager: str, *, told_to_end: bool = True) -> Moved:
    """Time passed: kill what does not end, say so when none appears, wait no longer for requests and conversations than was said.

    `told_to_end`: its manager has told the old process to end; before, that may not be killed.
    """
    if state.stage is Stage.STOPPING and state.kill_at is not None and now >= state.kill_at and not told_to_end:
        if state.retry_at is not None and now >= state.retry_at:
            return refused(state, f"{manager} says that it was, but its process is still the same", now, running=True)
        return _replace(state, kill_at=now + ASK_AGAIN_SECONDS), ()
    if state.stage is not Stage.STOPPING or state.kill_at is not None:
        return sv.tick(state, now)
    if state.retry_at is None:
        return _replace(state, retry_at=now + APPEAR_SECONDS), ()
    if now >= state.retry_at:
        return absent(state if state.refusal is not None else _replace(state, refusal=overdue(manager)))
    return state, ()
