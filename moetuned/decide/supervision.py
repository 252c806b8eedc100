"""Life of a supervised backend as a pure state machine: events in, next state and commands out.

The invariant: `Start` is only ever given when the last process is known to have ended, so no backend runs twice. A load
has no deadline, because a large model on a slow disk loads for as long as it must.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moetuned.decide.exit_cause import EVENT_OF, WAITS_FOR, Cause, Obstacle
from moetuned.schema.event import EventName
from moetuned.schema.units import format_duration


class Timing(msgspec.Struct, frozen=True):
    """Patience with a backend, seconds.

    `terminate_seconds`: how long it may take to end after SIGTERM before it is killed; `restart_seconds` the same for a restart,
    which is made when memory runs out (llama-server first ends its requests, which takes long when it thrashes). `breaker_exits` unexpected exits within
    `breaker_seconds`, or without having been ready once in between, and it is left to its owner; before that it is started again after
    `backoff_seconds`, one for each exit. `look_seconds`: how often it is looked whether what lets it not start is gone.
    """

    terminate_seconds: float = 15.0
    restart_seconds: float = 5.0
    backoff_seconds: tuple[float, ...] = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
    breaker_exits: int = 5
    breaker_seconds: float = 600.0
    look_seconds: float = 5.0


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
    wants at the next start of any kind. `fruitless`: exits since it was ready last; `obstacle`: what lets it not start;
    `hung`: it is ended because it hung; `cut_off`: requests that the restart under way cut off, None: unknown.
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
    fruitless: int = 0
    obstacle: Obstacle | None = None
    hung: bool = False
    cut_off: int | None = None


Moved = tuple[Supervision, tuple[Command, ...]]
_replace = msgspec.structs.replace


def begin(state: Supervision) -> Moved:
    """Start a backend that is known not to run."""
    if state.stage not in (Stage.STOPPED, Stage.WAITING, Stage.BROKEN):
        return state, ()
    plan = state.later_plan or state.plan
    if state.stage == Stage.BROKEN:
        state = _replace(state, exits=(), fruitless=0)
    return _replace(state, stage=Stage.LOADING, plan=plan, later_plan=None, retry_at=None), (Start(plan),)


def launched(state: Supervision, plan: LaunchPlan) -> Supervision:
    """Its process runs now, started with `plan`."""
    return _replace(state, plan=plan, obstacle=None)


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
                f"{state.backend} was restarted with a context of {state.plan.context_length} tokens and is healthy again after {took}"
                f"{_cut_off(state.cut_off)}",
            ),
        )
    if state.down:
        commands = (*commands, Say(EventName.BACKEND_RECOVERED, f"{state.backend} runs again"))
    return _replace(state, stage=Stage.READY, restart_began=None, down=False, fruitless=0, cut_off=None), commands


def _cut_off(requests: int | None) -> str:
    if requests is None:
        return "; whether a request was cut off is not known"
    if requests == 0:
        return "; no request was cut off"
    return f"; {requests} request{'s were' if requests > 1 else ' was'} cut off"


def hung(state: Supervision, now: float) -> Moved:
    """It hangs, and that was told: end it and start it again, as if it had exited by itself."""
    if state.stage != Stage.READY:
        return state, ()
    kill_at = now + state.timing.terminate_seconds
    return _replace(state, stage=Stage.STOPPING, next_plan=None, kill_at=kill_at, hung=True, down=True), (Terminate(),)


def restart(state: Supervision, plan: LaunchPlan, now: float) -> Moved:
    """End the process and start it again with `plan`, which also goes before what the config wanted for later."""
    state = _replace(state, later_plan=None)
    if state.stage in (Stage.LOADING, Stage.READY):
        kill_at = now + state.timing.restart_seconds
        cut_off = 0 if state.stage == Stage.LOADING else None
        return (
            _replace(state, stage=Stage.STOPPING, next_plan=plan, kill_at=kill_at, restart_began=now, cut_off=cut_off),
            (Terminate(),),
        )
    if state.stage == Stage.STOPPING:
        return _replace(state, next_plan=plan, hung=False), ()
    return begin(_replace(state, plan=plan, restart_began=now, restarts=state.restarts + 1, cut_off=0))


def stop(state: Supervision, now: float) -> Moved:
    """End the process for good."""
    if state.stage in (Stage.LOADING, Stage.READY):
        kill_at = now + state.timing.terminate_seconds
        return _replace(state, stage=Stage.STOPPING, next_plan=None, kill_at=kill_at), (Terminate(),)
    if state.stage == Stage.STOPPING:
        return _replace(state, next_plan=None, hung=False), ()
    return _replace(state, stage=Stage.STOPPED, retry_at=None, obstacle=None), ()


def exited(state: Supervision, how: str, now: float, cause: Cause = Cause.EXIT) -> Moved:
    """The process ended; `how` is the end of the sentence "NAME …", e.g. "exited with code 1"."""
    if state.stage == Stage.STOPPING and state.hung:
        return _failed(_replace(state, hung=False, kill_at=None), "hung and was ended", now, Cause.HUNG)
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
    if cause in WAITS_FOR:
        return _wait(state, how, now, Obstacle(cause, how))
    return _failed(state, how, now, cause)


def _failed(state: Supervision, how: str, now: float, cause: Cause) -> Moved:
    """It ended and nothing is known that has to be waited for: again after a while, unless that was tried too often."""
    timing = state.timing
    exits = (*(at for at in state.exits if now - at < timing.breaker_seconds), now)
    fruitless = state.fruitless + 1
    state = _replace(state, exits=exits, fruitless=fruitless, restart_began=None, obstacle=None, cut_off=None)
    if max(len(exits), fruitless) >= timing.breaker_exits:
        within = f"{len(exits)} times within {format_duration(timing.breaker_seconds)}"
        often = within if len(exits) >= timing.breaker_exits else f"{fruitless} times in a row without getting ready"
        message = f"{state.backend} {how}, {often}: moetuned leaves it stopped; {_again(state.backend)}"
        broken = _replace(state, stage=Stage.BROKEN, retry_at=None, down=True)
        return broken, (Say(EventName.BACKEND_CRASH_LOOP, message),)
    delay = timing.backoff_seconds[min(len(exits), len(timing.backoff_seconds)) - 1]
    message = f"{state.backend} {how}; it is started again in {format_duration(delay)}"
    return (
        _replace(state, stage=Stage.WAITING, retry_at=now + delay, down=True),
        (Note(message) if state.down else Say(EVENT_OF[cause], message),),
    )


def _again(backend: str) -> str:
    return f"read its log, then `moetunectl backend restart {backend}` or a reload of moetuned tries again"


def _wait(state: Supervision, how: str, now: float, obstacle: Obstacle) -> Moved:
    """It is started when that is gone. Nobody is to mend the backend, so this is no failure that counts."""
    known = state.obstacle is not None and state.obstacle.cause is obstacle.cause
    message = f"{state.backend} {how}; it is started {WAITS_FOR[obstacle.cause]}"
    said: Command = Note(message) if state.down else Say(EVENT_OF[obstacle.cause], message)
    retry_at = now + state.timing.look_seconds
    return (
        _replace(
            state,
            stage=Stage.WAITING,
            retry_at=retry_at,
            restart_began=None,
            cut_off=None,
            obstacle=obstacle,
            down=True,
        ),
        () if known else (said,),
    )


def obstructed(state: Supervision, obstacle: Obstacle, now: float) -> Moved:
    """Right before its start something was found that lets it not start; no process was started."""
    if state.stage == Stage.STOPPING:
        return exited(state, "was not started", now)
    if state.stage != Stage.LOADING:
        return state, ()
    return _wait(state, f"cannot be started: {obstacle.text}", now, obstacle)


def wait(state: Supervision, until: float) -> Supervision:
    """What an earlier daemon began is not settled yet: it is begun then, monotonic seconds."""
    return (
        _replace(state, stage=Stage.WAITING, retry_at=until) if state.stage in (Stage.STOPPED, Stage.LOADING) else state
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
            return "is being ended" if state.next_plan is None and not state.hung else "is being restarted"
        case Stage.WAITING | Stage.LOADING if state.obstacle is not None:
            return f"is not running: {state.obstacle.text}; it is started {WAITS_FOR[state.obstacle.cause]}"
        case Stage.WAITING if state.retry_at is not None:
            return f"is not running; it is started again in {format_duration(max(1.0, round(state.retry_at - now)))}"
        case Stage.BROKEN:
            often = max(len(state.exits), state.fruitless)
            return f"is not running: it failed {often} times in a row; {_again(state.backend)}"
    return None
