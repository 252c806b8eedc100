"""Where a supervised backend is in its life, in words for people."""

from __future__ import annotations

from moetuned.decide.exit_cause import WAITS_FOR
from moetuned.decide.supervision import Stage, Supervision, try_again
from moetuned.schema.units import format_duration


def absence(state: Supervision, now: float) -> str | None:
    """Why it does not run, as the end of the sentence "NAME …"; None when there is nothing to add."""
    match state.stage:
        case Stage.STOPPED:
            return "is not running"
        case Stage.STOPPING:
            return "is being ended" if state.next_plan is None and not state.hung else "is being restarted"
        case Stage.WAITING | Stage.LOADING if state.obstacle is not None:
            return f"is not running: {state.obstacle.text}; it is started {WAITS_FOR[state.obstacle.cause]}"
        case Stage.WAITING if state.retry_at is not None:
            return f"is not running; it is started again in {format_duration(max(1.0, round(state.retry_at - now)))}"
        case Stage.BROKEN:
            often = max(len(state.exits), state.fruitless)
            return f"is not running: it failed {often} times in a row; {try_again(state.backend)}"
    return None


def before_restart(state: Supervision, now: float) -> str | None:
    """What a restart under way waits for while the backend still answers, the end of the sentence "NAME …"; None: there is none."""
    match state.stage:
        case Stage.DRAINING if state.drain_until is not None:
            most = f"at most {format_duration(max(1.0, round(state.drain_until - now)))}"
            if state.busy is None:
                return f"is restarted in a moment; what it works on is not known ({most})"
            if state.busy == 0:
                return "is restarted now: it works on no request"
            return f"waits for {state.busy} request{'' if state.busy == 1 else 's'} to end before its restart, {most}"
        case Stage.SAVING:
            return "saves its conversations before its restart"
        case Stage.RESTORING:
            return "was restarted and reads its conversations again"
    return None
