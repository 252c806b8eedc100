"""Life of a supervised backend as a pure state machine: events in, next state and commands out.

The invariant: `Start` is only ever given when the last process is known to have ended, so no backend runs twice. A load
has no deadline, because a large model on a slow disk loads for as long as it must.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moetuned.schema.event import EventName
from moetuned.schema.units import format_duration


class Timing(msgspec.Struct, frozen=True):
    """Patience with a backend, seconds.

    `terminate_seconds`: how long it may take to end after SIGTERM before it is killed; `restart_seconds` the same for a restart,
    which is made when memory runs out. Measured: a llama-server (b11434) that works on a request gives it up at SIGTERM and then never
    ends while the client holds the connection, one that is idle ends within half a second; so waiting longer saves nothing.
    `breaker_exits` unexpected exits within `breaker_seconds` and it is left to its owner; before that it is started again after
    `backoff_seconds`, one for each exit.
    """

    terminate_seconds: float = 15.0
    restart_seconds: float = 2.0
    backoff_seconds: tuple[float, ...] = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
    breaker_exits: int = 5
    breaker_seconds: float = 600.0


class Stage(StrEnum):
    """Where the backend is in its life."""

    STOPPED = "stopped"
    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    WAITING = "waiting"
    BROKEN = "broken"


class LaunchPlan(msgspec.Struct, frozen=True):
    """What the backend is started with: context length (tokens), prompt cache (MiB), slots, context checkpoints a slot and KV type.

    None: not given.
    """

    context_length: int
    prompt_cache_mib: int | None = None
    slots: int | None = None
    checkpoints: int | None = None
    cache_type: str | None = None


class Start(msgspec.Struct, frozen=True):
    """Start the process."""

    plan: LaunchPlan


class Terminate(msgspec.Struct, frozen=True):
    """Send SIGTERM."""


class Kill(msgspec.Struct, frozen=True):
    """Send SIGKILL."""


class Say(msgspec.Struct, frozen=True):
    """An event to make known."""

    name: EventName
    message: str


class Note(msgspec.Struct, frozen=True):
    """A sentence for the log: what happened is known from an event before."""

    message: str


Command = Start | Terminate | Kill | Say | Note


class Supervision(msgspec.Struct, frozen=True):
    """State of one backend. Times are monotonic seconds.

    `plan` is what it runs with (or ran with last), `next_plan` what the restart under way gives it, `later_plan` what the config
    wants at the next start of any kind.
    """

    backend: str
    plan: LaunchPlan
    timing: Timing = Timing()
    stage: Stage = Stage.STOPPED
    next_plan: LaunchPlan | None = None
    later_plan: LaunchPlan | None = None
    kill_at: float | None = None
    retry_at: float | None = None
    restart_began: float | None = None
    down: bool = False
    exits: tuple[float, ...] = ()
    restarts: int = 0


Moved = tuple[Supervision, tuple[Command, ...]]
_replace = msgspec.structs.replace


def begin(state: Supervision) -> Moved:
    """Start a backend that is known not to run."""
    if state.stage not in (Stage.STOPPED, Stage.WAITING, Stage.BROKEN):
        return state, ()
    plan = state.later_plan or state.plan
    exits = () if state.stage == Stage.BROKEN else state.exits
    return _replace(state, stage=Stage.LOADING, plan=plan, later_plan=None, retry_at=None, exits=exits), (Start(plan),)


def reconfigure(state: Supervision, plan: LaunchPlan) -> Supervision:
    """The config wants another plan: it is used when the backend is started the next time."""
    return _replace(state, later_plan=plan)


def adopt(state: Supervision, plan: LaunchPlan) -> Supervision:
    """A process that an earlier daemon started still runs with `plan`: take it over instead of starting a second one."""
    return _replace(state, stage=Stage.LOADING, plan=plan)


def healthy(state: Supervision, now: float) -> Moved:
    """The backend answered that it is ready."""
    if state.stage != Stage.LOADING:
        return state, ()
    commands: tuple[Command, ...] = ()
    if state.restart_began is not None:
        took = format_duration(now - state.restart_began)
        commands = (
            Say(
                EventName.BACKEND_RESTARTED,
                f"{state.backend} was restarted with a context of {state.plan.context_length} tokens and is healthy again after {took}",
            ),
        )
    elif state.down:
        commands = (Say(EventName.BACKEND_RECOVERED, f"{state.backend} runs again"),)
    return _replace(state, stage=Stage.READY, restart_began=None, down=False), commands


def restart(state: Supervision, plan: LaunchPlan, now: float) -> Moved:
    """End the process and start it again with `plan`, which also goes before what the config wanted for later."""
    state = _replace(state, later_plan=None)
    if state.stage in (Stage.LOADING, Stage.READY):
        kill_at = now + state.timing.restart_seconds
        return (
            _replace(state, stage=Stage.STOPPING, next_plan=plan, kill_at=kill_at, restart_began=now),
            (Terminate(),),
        )
    if state.stage == Stage.STOPPING:
        return _replace(state, next_plan=plan), ()
    return begin(_replace(state, plan=plan, restart_began=now, restarts=state.restarts + 1))


def stop(state: Supervision, now: float) -> Moved:
    """End the process for good."""
    if state.stage in (Stage.LOADING, Stage.READY):
        kill_at = now + state.timing.terminate_seconds
        return _replace(state, stage=Stage.STOPPING, next_plan=None, kill_at=kill_at), (Terminate(),)
    if state.stage == Stage.STOPPING:
        return _replace(state, next_plan=None), ()
    return _replace(state, stage=Stage.STOPPED, retry_at=None), ()


def exited(state: Supervision, how: str, now: float) -> Moved:
    """The process ended; `how` is the end of the sentence "NAME …", e.g. "exited with code 1"."""
    if state.stage == Stage.STOPPING:
        if state.next_plan is None:
            return _replace(state, stage=Stage.STOPPED, kill_at=None), ()
        return begin(
            _replace(
                state,
                stage=Stage.STOPPED,
                plan=state.next_plan,
                next_plan=None,
                kill_at=None,
                restarts=state.restarts + 1,
            )
        )
    if state.stage not in (Stage.LOADING, Stage.READY):
        return state, ()
    timing = state.timing
    exits = (*(at for at in state.exits if now - at < timing.breaker_seconds), now)
    if len(exits) >= timing.breaker_exits:
        message = (
            f"{state.backend} {how}, {len(exits)} times within {format_duration(timing.breaker_seconds)}: moetuned leaves it "
            "stopped; read its log, then reload moetuned to try again"
        )
        return (
            _replace(state, stage=Stage.BROKEN, exits=exits, restart_began=None, down=True),
            (Say(EventName.BACKEND_DOWN, message),),
        )
    delay = timing.backoff_seconds[min(len(exits), len(timing.backoff_seconds)) - 1]
    message = f"{state.backend} {how}; it is started again in {format_duration(delay)}"
    return (
        _replace(state, stage=Stage.WAITING, exits=exits, retry_at=now + delay, restart_began=None, down=True),
        (Note(message) if state.down else Say(EventName.BACKEND_DOWN, message),),
    )


def failed_to_start(state: Supervision, why: str, now: float) -> Moved:
    """The process could not be started at all (no such program, no permission): as if it had exited at once."""
    return exited(state, f"could not be started: {why}", now)


def tick(state: Supervision, now: float) -> Moved:
    """Time passed: kill what does not end, retry what waits."""
    if state.stage == Stage.STOPPING and state.kill_at is not None and now >= state.kill_at:
        return _replace(state, kill_at=now + state.timing.terminate_seconds), (Kill(),)
    if state.stage == Stage.WAITING and state.retry_at is not None and now >= state.retry_at:
        return begin(state)
    return state, ()


def absence(state: Supervision, now: float) -> str | None:
    """Why it does not run, as the end of the sentence "NAME …"; None when there is nothing to add."""
    match state.stage:
        case Stage.STOPPING:
            return "is being ended" if state.next_plan is None else "is being restarted"
        case Stage.WAITING if state.retry_at is not None:
            return f"is not running; it is started again in {format_duration(max(1.0, round(state.retry_at - now)))}"
        case Stage.BROKEN:
            return f"is not running: it failed {len(state.exits)} times in a row; read its log, then reload moetuned to try again"
    return None
