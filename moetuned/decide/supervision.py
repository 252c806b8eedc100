"""Life of a supervised backend as a pure state machine: events in, next state and commands out.

The invariant: `Start` is only ever given when the last process is known to have ended, so no backend runs twice. A load
has no deadline, because a large model on a slow disk loads for as long as it must.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moetuned.decide import cutting_off
from moetuned.decide.cutting_off import CutOff
from moetuned.decide.exit_cause import EVENT_OF, WAITS_FOR, Cause, Obstacle
from moetuned.schema.event import EventName
from moetuned.schema.units import format_duration


class Timing(msgspec.Struct, frozen=True):
    """Patience with a backend, seconds.

    `terminate_seconds`: how long it may take to end after SIGTERM before it is killed; `restart_seconds` the same for a restart,
    which is made when memory runs out. Measured: a llama-server (b11434) that works on a request gives it up at SIGTERM and then never
    ends while the client holds the connection, one that is idle ends within half a second; so waiting longer saves nothing.
    `breaker_exits` unexpected exits within
    `breaker_seconds`, or without having been ready once in between, and it is left to its owner; before that it is started again after
    `backoff_seconds`, one for each exit. `look_seconds`: how often it is looked whether what lets it not start is gone. `grace_seconds`:
    how long a restart waits where nobody tells whether a request is worked on; `save_seconds`, `restore_seconds`: how long its
    conversations may take to be written to disk before a restart, and to be read again after it. `last_look_seconds`: an answer that
    comes so late in the wait for requests ends it.
    """

    terminate_seconds: float = 15.0
    restart_seconds: float = 2.0
    backoff_seconds: tuple[float, ...] = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
    breaker_exits: int = 5
    breaker_seconds: float = 600.0
    grace_seconds: float = 2.0
    save_seconds: float = 20.0
    restore_seconds: float = 30.0
    look_seconds: float = 5.0
    last_look_seconds: float = 0.3


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
    disk, also while it is waited for requests once more; `lost`: so many could not be saved, as far as they were counted. `cut_off`: requests
    that the last restart did not let end. `hurry`: the restart under way is because memory runs out. `managed`: another manager starts and ends it, see `decide.managed`.
    `fruitless`: exits since it was ready last; `obstacle`: what lets it not start; `hung`: it is ended because it hung; `refusal`: why its
    manager did not restart it, a sentence, while it is not known what became of it.
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
    cut_off: CutOff = cutting_off.UNKNOWN
    lost: int = 0
    hurry: bool = True
    managed: bool = False
    fruitless: int = 0
    obstacle: Obstacle | None = None
    hung: bool = False
    refusal: str | None = None


Moved = tuple[Supervision, tuple[Command, ...]]
_replace = msgspec.structs.replace
UP = (Stage.READY, Stage.DRAINING, Stage.SAVING, Stage.RESTORING)
"""It answers."""


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
        told = (cutting_off.counted(kept, "conversation", "goes on", "go on"), cutting_off.counted(lost + state.lost, "conversation", "was lost", "were lost"),
                cutting_off.words(state.cut_off))  # fmt: skip
        commands = (Say(EventName.BACKEND_RESTARTED, "; ".join((message, *(each for each in told if each)))),)
    if state.down:
        commands = (*commands, Say(EventName.BACKEND_RECOVERED, f"{state.backend} runs again"))
    state = _replace(state, stage=Stage.READY, restart_began=None, down=False, holds=False, stage_until=None, busy=None)
    return _replace(state, fruitless=0, cut_off=cutting_off.UNKNOWN, lost=0, obstacle=None), commands


def hung(state: Supervision, now: float) -> Moved:
    """It hangs, and that was told: end it and start it again, as if it had exited by itself."""
    if state.stage not in UP:
        return state, ()
    if state.managed:  # Its manager would leave one stopped that it was told to end.
        return _end(_replace(state, next_plan=state.plan, holds=False, hurry=False, down=True), now)
    kill_at = now + state.timing.terminate_seconds
    return _replace(state, stage=Stage.STOPPING, next_plan=None, kill_at=kill_at, hung=True, down=True, holds=False), (
        Terminate(),
    )


def answers(state: Supervision) -> Supervision:
    """One that hung answers again although nobody restarted it, and that was told: what comes next is news."""
    return _replace(state, down=False) if state.stage in UP else state


def drain(
    state: Supervision,
    plan: LaunchPlan,
    now: float,
    seconds: float,
    *,
    saves: bool = False,
    hurry: bool = True,
    end_seconds: float | None = None,
) -> Moved:
    """Restart it with `plan` once it works on no request, at most `seconds` from now; none, or not ready: at once.

    `saves`: its conversations are saved before it ends. `hurry`, `end_seconds`: see `restart`.
    """
    if state.stage != Stage.READY or seconds <= 0:
        return restart(state, plan, now, hurry=hurry, end_seconds=end_seconds)
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
    if state.drain_until is not None:
        state = _replace(state, drain_until=min(until, state.drain_until))
    return (state if state.stage_until is None else _replace(state, stage_until=min(until, state.stage_until))), ()


def call_off(state: Supervision) -> Supervision:
    """The restart is not needed any more; once its process was told to end it is too late for that."""
    if state.stage not in (Stage.DRAINING, Stage.SAVING):
        return state
    state = _replace(state, stage=Stage.READY, next_plan=None, drain_began=None, drain_until=None, stage_until=None)
    return _replace(state, holds=False, lost=0)


def heard(state: Supervision, busy: int | None, asked_at: float | None, now: float) -> Moved:
    """How many requests it works on, by its answer to what was asked at `asked_at`; None: that is not known."""
    state = _replace(state, busy=busy)
    if state.stage != Stage.DRAINING or state.drain_began is None:
        return state, ()
    if busy is None:
        if now < state.drain_began + state.timing.grace_seconds:
            return state, ()
        return _drained(_replace(state, drain_until=None), now)  # There is nobody to ask once more.
    # An answer from before says nothing of a request that came just then. Near the deadline each may be the last one, and how many are
    # cut off is only known by a fresh one.
    fresh = asked_at is not None and asked_at >= state.drain_began
    last = state.drain_until is not None and now >= state.drain_until - state.timing.last_look_seconds
    if fresh and (busy == 0 or last):
        return _drained(state, now)
    return state, ()


def saved(state: Supervision, now: float, conversations: int, lost: int = 0) -> Moved:
    """So many of its conversations are on disk, and no more will be; so many are known not to be.

    A request may have come meanwhile: what is left of the wait for requests is for it. What is on disk then stays as it is, a shorter
    beginning of the same conversation.
    """
    if state.stage != Stage.SAVING:
        return state, ()
    state = _replace(state, holds=conversations > 0, lost=lost)
    if state.drain_until is None or now >= state.drain_until - state.timing.last_look_seconds:
        return _end(state, now)
    return _replace(state, stage=Stage.DRAINING, saves=False, drain_began=now, stage_until=None), ()


def _drained(state: Supervision, now: float) -> Moved:
    if not state.saves or state.next_plan is None:
        return _end(state, now)
    until = now + state.timing.save_seconds
    return _replace(state, stage=Stage.SAVING, stage_until=until), (SaveSlots(state.next_plan, until),)


def _end(state: Supervision, now: float, end_seconds: float | None = None) -> Moved:
    """The restart begins: its process is told to end, or its manager is told to restart it."""
    seconds = state.timing.restart_seconds if state.hurry else state.timing.terminate_seconds
    kill_at = now + (seconds if end_seconds is None else min(seconds, end_seconds))
    heard = cutting_off.NONE if state.stage == Stage.LOADING else CutOff(state.busy)
    ends = _replace(state, stage=Stage.STOPPING, kill_at=kill_at, restart_began=now, later_plan=None)
    ends = _replace(ends, cut_off=heard)
    ask = Ask(ends.next_plan) if ends.managed and ends.next_plan is not None else Terminate()
    return _replace(ends, drain_began=None, drain_until=None, stage_until=None), (ask,)


def counted(state: Supervision, connections: int | None) -> Supervision:
    """See `cutting_off.before_end`."""
    if state.stage != Stage.STOPPING:
        return state
    return _replace(state, cut_off=cutting_off.before_end(state.cut_off, connections))


def counted_on(state: Supervision, taken: int | None) -> Supervision:
    """See `cutting_off.when_ended`."""
    if state.stage != Stage.STOPPING:
        return state
    return _replace(state, cut_off=cutting_off.when_ended(state.cut_off, taken))


def restart(
    state: Supervision, plan: LaunchPlan, now: float, *, hurry: bool = True, end_seconds: float | None = None
) -> Moved:
    """End the process and start it again with `plan`, which also goes before what the config wanted for later.

    `hurry`: memory runs out, so that it gets less time to end; `end_seconds`: no more than this.
    """
    state = _replace(state, later_plan=None, hurry=hurry)
    if state.stage in (Stage.LOADING, *UP):
        return _end(_replace(state, next_plan=plan, holds=False, lost=0), now, end_seconds)
    if state.stage == Stage.STOPPING:
        # Its manager has been told already, with the plan before.
        return state if state.managed else _replace(state, next_plan=plan, hung=False), ()
    if state.managed:
        return _replace(state, stage=Stage.STOPPING, next_plan=plan, kill_at=None, restart_began=now), (Ask(plan),)
    return begin(_replace(state, plan=plan, restart_began=now, restarts=state.restarts + 1, cut_off=cutting_off.NONE))


def stop(state: Supervision, now: float) -> Moved:
    """End the process for good."""
    if state.stage in (Stage.LOADING, *UP):
        kill_at = now + state.timing.terminate_seconds
        return _replace(state, stage=Stage.STOPPING, next_plan=None, kill_at=kill_at, holds=False), (Terminate(),)
    if state.stage == Stage.STOPPING:
        return _replace(state, next_plan=None, holds=False, hung=False), ()
    return _replace(state, stage=Stage.STOPPED, retry_at=None, obstacle=None), ()


def exited(state: Supervision, how: str, now: float, cause: Cause = Cause.EXIT) -> Moved:
    """The process ended; `how` is the end of the sentence "NAME …", e.g. "exited with code 1"."""
    if state.stage == Stage.STOPPING and state.hung:
        return _failed(_replace(state, hung=False, kill_at=None), "hung and was ended", now, Cause.HUNG)
    if state.stage == Stage.STOPPING:
        if state.next_plan is None:
            return _replace(state, stage=Stage.STOPPED, kill_at=None), ()
        later = state.later_plan
        if state.hurry and later is not None and later.context_length > state.next_plan.context_length:
            later = None  # The config was changed meanwhile; what memory has no room for now is given back when it has.
        return begin(
            _replace(
                state,
                stage=Stage.STOPPED,
                plan=state.next_plan,
                next_plan=None,
                later_plan=later,
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
    if cause in WAITS_FOR:
        return _wait(state, how, now, Obstacle(cause, how))
    return _failed(state, how, now, cause)


def _failed(state: Supervision, how: str, now: float, cause: Cause) -> Moved:
    """It ended and nothing is known that has to be waited for: again after a while, unless that was tried too often."""
    timing = state.timing
    exits = (*(at for at in state.exits if now - at < timing.breaker_seconds), now)
    fruitless = state.fruitless + 1
    # How a restart came out is told also of one that was down before.
    known = state.down and state.restart_began is None
    state = _replace(state, exits=exits, fruitless=fruitless, restart_began=None, obstacle=None)
    state = _replace(state, cut_off=cutting_off.UNKNOWN, lost=0)
    if max(len(exits), fruitless) >= timing.breaker_exits:
        within = f"{len(exits)} times within {format_duration(timing.breaker_seconds)}"
        often = within if len(exits) >= timing.breaker_exits else f"{fruitless} times in a row without getting ready"
        message = f"{state.backend} {how}, {often}: moetuned leaves it stopped; {try_again(state.backend)}"
        broken = _replace(state, stage=Stage.BROKEN, retry_at=None, down=True)
        return broken, (Say(EventName.BACKEND_CRASH_LOOP, message),)
    delay = timing.backoff_seconds[min(len(exits), len(timing.backoff_seconds)) - 1]
    message = f"{state.backend} {how}; it is started again in {format_duration(delay)}"
    return (
        _replace(state, stage=Stage.WAITING, retry_at=now + delay, down=True),
        (Note(message) if known else Say(EVENT_OF[cause], message),),
    )


def try_again(backend: str) -> str:
    """What its owner can do about one that is left stopped, for people."""
    return f"read its log, then `moetunectl backend restart {backend}` or a reload of moetuned tries again"


def _wait(state: Supervision, how: str, now: float, obstacle: Obstacle) -> Moved:
    """It is started when that is gone. Nobody is to mend the backend, so this is no failure that counts."""
    restarted = state.restart_began is not None
    known = state.obstacle is not None and state.obstacle.cause is obstacle.cause and not restarted
    message = f"{state.backend} {how}; it is started {WAITS_FOR[obstacle.cause]}"
    said: Command = Note(message) if state.down and not restarted else Say(EVENT_OF[obstacle.cause], message)
    retry_at = now + state.timing.look_seconds
    state = _replace(state, restart_began=None, cut_off=cutting_off.UNKNOWN, lost=0)
    waits = _replace(state, stage=Stage.WAITING, retry_at=retry_at, obstacle=obstacle, down=True)
    return waits, () if known else (said,)


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
    """Time passed: kill what does not end, retry what waits, wait no longer for requests and conversations than was said."""
    if state.stage == Stage.DRAINING and state.drain_until is not None and now >= state.drain_until:
        # No answer came near the deadline: how many are cut off is not known.
        return _drained(_replace(state, busy=None), now)
    if state.stage in (Stage.SAVING, Stage.RESTORING) and state.stage_until is not None and now >= state.stage_until:
        return _end(state, now) if state.stage == Stage.SAVING else _ready(state, now)
    if state.stage == Stage.STOPPING and state.kill_at is not None and now >= state.kill_at:
        return _replace(state, kill_at=now + state.timing.terminate_seconds), (Kill(),)
    if state.stage == Stage.WAITING and state.retry_at is not None and now >= state.retry_at:
        return begin(state)
    return state, ()
