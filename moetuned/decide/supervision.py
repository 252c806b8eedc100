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
    which is made when memory runs out (llama-server first ends its requests, which takes long when it thrashes). `breaker_exits` unexpected exits within
    `breaker_seconds` and it is left to its owner; before that it is started again after `backoff_seconds`, one for each exit.
    `grace_seconds`: how long a restart waits where nobody tells whether a request is worked on; `save_seconds`, `restore_seconds`: how
    long its conversations may take to be written to disk before a restart, and to be read again after it.
    """

    terminate_seconds: float = 15.0
    restart_seconds: float = 5.0
    backoff_seconds: tuple[float, ...] = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
    breaker_exits: int = 5
    breaker_seconds: float = 600.0
    grace_seconds: float = 2.0
    save_seconds: float = 20.0
    restore_seconds: float = 30.0


class Stage(StrEnum):
    """Where the backend is in its life."""

    STOPPED = "stopped"
    LOADING = "loading"
    RESTORING = "restoring"
    READY = "ready"
    DRAINING = "draining"
    SAVING = "saving"
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


class Ask(msgspec.Struct, frozen=True):
    """Have its manager end it and start it with this plan."""

    plan: LaunchPlan


class SaveSlots(msgspec.Struct, frozen=True):
    """Have it write its conversations to disk until then (monotonic seconds), as far as they go on under `plan`."""

    plan: LaunchPlan
    until: float


class RestoreSlots(msgspec.Struct, frozen=True):
    """Have it read them again until then."""

    until: float


class Say(msgspec.Struct, frozen=True):
    """An event to make known."""

    name: EventName
    message: str


class Note(msgspec.Struct, frozen=True):
    """A sentence for the log: what happened is known from an event before."""

    message: str


Command = Start | Terminate | Kill | Ask | SaveSlots | RestoreSlots | Say | Note


class Supervision(msgspec.Struct, frozen=True):
    """State of one backend. Times are monotonic seconds.

    `plan` is what it runs with (or ran with last), `next_plan` what the restart under way gives it, `later_plan` what the config
    wants at the next start of any kind. `busy`: requests it works on, None: not known. `drain_…`: of the restart that waits for
    them; `saves`: its conversations are saved then; `stage_until`: when saving or restoring has taken long enough; `holds`: they are on
    disk. `cut_off`: requests that the last restart did not let end, None: not known. `hurry`: the restart under way is because memory
    runs out. `managed`: another manager starts and ends it, see `decide.managed`.
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
    busy: int | None = None
    drain_began: float | None = None
    drain_until: float | None = None
    saves: bool = False
    stage_until: float | None = None
    holds: bool = False
    cut_off: int | None = None
    hurry: bool = True
    managed: bool = False


Moved = tuple[Supervision, tuple[Command, ...]]
_replace = msgspec.structs.replace
UP = (Stage.READY, Stage.DRAINING, Stage.SAVING, Stage.RESTORING)
"""It answers."""


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
    if state.holds:
        until = now + state.timing.restore_seconds
        return _replace(state, stage=Stage.RESTORING, stage_until=until), (RestoreSlots(until),)
    return _ready(state, now)


def restored(state: Supervision, now: float, kept: int = 0, lost: int = 0) -> Moved:
    """So many of its conversations were read again, so many could not be."""
    return _ready(state, now, kept, lost) if state.stage == Stage.RESTORING else (state, ())


def _ready(state: Supervision, now: float, kept: int = 0, lost: int = 0) -> Moved:
    commands: tuple[Command, ...] = ()
    if state.restart_began is not None:
        took = format_duration(now - state.restart_began)
        message = f"{state.backend} was restarted with a context of {state.plan.context_length} tokens and is healthy again after {took}"
        told = (_counted(kept, "conversation", "goes on", "go on"), _counted(lost, "conversation", "was lost", "were lost"),
                _counted(state.cut_off or 0, "request", "was cut off", "were cut off"))  # fmt: skip
        commands = (Say(EventName.BACKEND_RESTARTED, "; ".join((message, *(each for each in told if each)))),)
    elif state.down:
        commands = (Say(EventName.BACKEND_RECOVERED, f"{state.backend} runs again"),)
    return (
        _replace(state, stage=Stage.READY, restart_began=None, down=False, holds=False, stage_until=None, busy=None),
        commands,
    )


def _counted(count: int, what: str, one: str, many: str) -> str:
    return "" if count == 0 else f"{count} {what}{'' if count == 1 else 's'} {one if count == 1 else many}"


def drain(
    state: Supervision, plan: LaunchPlan, now: float, seconds: float, *, saves: bool = False, hurry: bool = True
) -> Moved:
    """Restart it with `plan` once it works on no request, at most `seconds` from now; none, or not ready: at once.

    `saves`: its conversations are saved before it ends. `hurry`: see `restart`.
    """
    if state.stage != Stage.READY or seconds <= 0:
        return restart(state, plan, now, hurry=hurry)
    until = now + seconds
    waits = _replace(
        state, stage=Stage.DRAINING, next_plan=plan, saves=saves, drain_began=now, drain_until=until, hurry=hurry
    )
    return waits, ()


def hasten(state: Supervision, now: float, seconds: float) -> Moved:
    """No more than `seconds` are left before the restart under way; 0: there is no time to save anything either."""
    if state.stage not in (Stage.DRAINING, Stage.SAVING):
        return state, ()
    if seconds <= 0:
        return _end(state, now)
    until = now + seconds
    if state.stage == Stage.SAVING:
        return _replace(state, stage_until=min(until, state.stage_until or until)), ()
    return _replace(state, drain_until=min(until, state.drain_until or until)), ()


def call_off(state: Supervision) -> Supervision:
    """The restart is not needed any more; once its process was told to end it is too late for that."""
    if state.stage not in (Stage.DRAINING, Stage.SAVING):
        return state
    return _replace(state, stage=Stage.READY, next_plan=None, drain_began=None, drain_until=None, stage_until=None)


def heard(state: Supervision, busy: int | None, answered_at: float | None, now: float) -> Moved:
    """How many requests it works on, by its answer at `answered_at`; None: that is not known."""
    state = _replace(state, busy=busy)
    if state.stage != Stage.DRAINING or state.drain_began is None:
        return state, ()
    # An answer from before says nothing of a request that came just then.
    idle = busy == 0 and answered_at is not None and answered_at >= state.drain_began
    if idle or (busy is None and now >= state.drain_began + state.timing.grace_seconds):
        return _drained(state, now)
    return state, ()


def saved(state: Supervision, now: float, conversations: int) -> Moved:
    """So many of its conversations are on disk, and no more will be."""
    return _end(_replace(state, holds=conversations > 0), now) if state.stage == Stage.SAVING else (state, ())


def _drained(state: Supervision, now: float) -> Moved:
    if not state.saves or state.next_plan is None:
        return _end(state, now)
    until = now + state.timing.save_seconds
    return _replace(state, stage=Stage.SAVING, stage_until=until), (SaveSlots(state.next_plan, until),)


def _end(state: Supervision, now: float) -> Moved:
    """The restart begins: its process is told to end, or its manager is told to restart it."""
    kill_at = now + (state.timing.restart_seconds if state.hurry else state.timing.terminate_seconds)
    cut_off = 0 if state.stage == Stage.LOADING else state.busy
    ends = _replace(state, stage=Stage.STOPPING, kill_at=kill_at, restart_began=now, later_plan=None, cut_off=cut_off)
    ask = Ask(ends.next_plan) if ends.managed and ends.next_plan is not None else Terminate()
    return _replace(ends, drain_began=None, drain_until=None, stage_until=None), (ask,)


def restart(state: Supervision, plan: LaunchPlan, now: float, *, hurry: bool = True) -> Moved:
    """End the process and start it again with `plan`, which also goes before what the config wanted for later.

    `hurry`: memory runs out, so that it gets less time to end.
    """
    state = _replace(state, later_plan=None, hurry=hurry)
    if state.stage in (Stage.LOADING, *UP):
        return _end(_replace(state, next_plan=plan, holds=False), now)
    if state.stage == Stage.STOPPING:
        # Its manager has been told already, with the plan before.
        return state if state.managed else _replace(state, next_plan=plan), ()
    if state.managed:
        return _replace(state, stage=Stage.STOPPING, next_plan=plan, kill_at=None, restart_began=now), (Ask(plan),)
    return begin(_replace(state, plan=plan, restart_began=now, restarts=state.restarts + 1))


def stop(state: Supervision, now: float) -> Moved:
    """End the process for good."""
    if state.stage in (Stage.LOADING, *UP):
        kill_at = now + state.timing.terminate_seconds
        return _replace(state, stage=Stage.STOPPING, next_plan=None, kill_at=kill_at, holds=False), (Terminate(),)
    if state.stage == Stage.STOPPING:
        return _replace(state, next_plan=None, holds=False), ()
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
    if state.stage not in (Stage.LOADING, *UP):
        return state, ()
    if state.stage in (Stage.DRAINING, Stage.SAVING) and state.next_plan is not None:
        # Nobody asked it to end yet, so that counts as an exit; it comes back with what the restart was to give it.
        state = _replace(
            state, plan=state.next_plan, next_plan=None, later_plan=None, drain_began=None, drain_until=None
        )
    state = _replace(state, holds=False, stage_until=None, busy=None)
    timing = state.timing
    exits = (*(at for at in state.exits if now - at < timing.breaker_seconds), now)
    if len(exits) >= timing.breaker_exits:
        message = (
            f"{state.backend} {how}, {len(exits)} times within {format_duration(timing.breaker_seconds)}: moetuned leaves it "
            f"stopped; read its log, then try again: moetunectl backend restart {state.backend}"
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
    """Time passed: kill what does not end, retry what waits, wait no longer for requests and conversations than was said."""
    if state.stage == Stage.DRAINING and state.drain_until is not None and now >= state.drain_until:
        return _drained(state, now)
    if state.stage in (Stage.SAVING, Stage.RESTORING) and state.stage_until is not None and now >= state.stage_until:
        return _end(state, now) if state.stage == Stage.SAVING else _ready(state, now)
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
            return (
                f"is not running: it failed {len(state.exits)} times in a row; read its log, then try again: "
                f"moetunectl backend restart {state.backend}"
            )
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
