"""What to do when memory nears its limit: the smallest steps that help, a restart at most so often, or say why not.

Pure: `step` takes the state and returns the next one with what to do. The steps are those of `decide.relief_ladder`. What needs no
restart is done first and alone, and its effect is waited for; what needs one is joined into one restart. What did not move the numbers
is reported and not done again before memory was well; nothing is done while headroom rises by itself. A restart waits for the requests
that are worked on, as long as memory has time, and is called off when memory is well again before they have ended.
"""

from __future__ import annotations

import msgspec

from moetuned.decide import foresight, relief_ladder
from moetuned.decide.foresight import Growing
from moetuned.decide.growth_kind import GrowthKind
from moetuned.decide.owner_words import owner_words
from moetuned.decide.relief_ladder import Ladder, ReliefFacts
from moetuned.schema.action import RestartBackend
from moetuned.schema.relief import DEFAULT_STEPS, StepName
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.units import format_bytes, format_duration
from moetuned.schema.verdict import MemoryState, Verdict

__all__ = ["NEAR", "Relief", "ReliefFacts", "ReliefSettings", "ReliefState", "Trial"]

NEAR = (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL)
"""States of memory in which something is to be done."""

ACT_SECONDS = 15.0
"""Growth alone is reason to act only when the limit is this near: a shorter time than a restart may take is too late."""
MOVED_SHARE = 0.25
"""A step moved the numbers when at least this share of what it surely frees is seen,"""
MOVED_BYTES = relief_ladder.NOTICEABLE_BYTES
"""and at least this much."""
RISING_BYTES = 4 << 20
"""Headroom that grew by less from one look to the next does not rise."""
END_SECONDS = 5.0
"""So long before the limit a backend must be told to end: it may take that long (`Timing.restart_seconds` of `decide.supervision`)."""
END_SHARE = 0.5
"""Of the time until the limit a backend that is restarted at once gets to end by itself: at its limit the kernel would end it, or another."""
SQUEEZE_SECONDS = 3.0
"""The limit comes within a look or two: there is no time for another one unless the backend is paused."""
OWN_GROWTH = frozenset({"prompt_cache", "leak", "loading", "start", "unknown"})
"""Kinds of growth (`decide.growth_kind`) that stop while the backend is paused, or may."""
ENDS_WITH_IT = frozenset({"prompt_cache", "loading", "start"})
"""Kinds of growth that end with the process: how long those have lasted says nothing of how long others' will."""
LOOKS_APART_SECONDS = 10.0
"""Looks further apart are not compared."""


class ReliefSettings(msgspec.Struct, frozen=True):
    """How much relief may do.

    `target_headroom_bytes`: headroom to restore, above the near limit so that it stays away. `near_headroom_bytes`: below it
    memory is near its limit whatever it does next. `settle_seconds` after a step its effect is judged; None: it is not judged.
    `looks`: so many in a row must see that memory is near its limit before anything is done. `drain_seconds`: so long a restart waits for
    requests to end, unless memory is critical.
    """

    act: bool
    at_most: int
    at_most_seconds: float
    cool_down_seconds: float
    target_headroom_bytes: int
    near_headroom_bytes: int = 0
    steps: tuple[StepName, ...] = DEFAULT_STEPS
    settle_seconds: float | None = None
    looks: int = 1
    drain_seconds: float = 0.0


class Trial(msgspec.Struct, frozen=True):
    """Steps whose effect is not known yet, and how memory was before them. `since` None: the restart is under way."""

    steps: tuple[StepName, ...]
    headroom_bytes: int
    own_bytes: int | None
    sure_bytes: int
    restart: bool
    since: float | None = None


class ReliefState(msgspec.Struct, frozen=True):
    """What relief remembers of one backend. `restarted_at`: times (monotonic seconds) of the restarts it asked for.

    `useless`: steps that did not move the numbers since memory was well. `looked`: when headroom was seen last, and how much.
    `growing`: the growth towards a limit that is told now, but for what ends with the process.
    """

    restarted_at: tuple[float, ...] = ()
    restarting: bool = False
    exhausted: bool = False
    trial: Trial | None = None
    useless: tuple[StepName, ...] = ()
    looks: int = 0
    looked: tuple[float, int] | None = None
    growing: Growing | None = None


class Relief(msgspec.Struct, frozen=True):
    """One decision. `own`: steps to take that need no restart. `exhausted`: set at the tick at which nothing is left to do, the
    sentence to say. `report`: what became of the steps before, set at the tick at which that is known. `drain_seconds`: so long the
    restart, or the one under way, may still wait for requests; None: as was said before. `end_seconds`: so long its process has to end by itself, None: as ever. `call_off`: the one under way is not needed.
    `pause`: stop the process until the next look.
    """

    state: ReliefState
    restart: RestartBackend | None = None
    would_do: tuple[str, ...] = ()
    exhausted: str | None = None
    own: tuple[StepName, ...] = ()
    report: str | None = None
    drain_seconds: float | None = None
    end_seconds: float | None = None
    call_off: bool = False
    pause: bool = False


def restarted(state: ReliefState) -> ReliefState:
    """The restart asked for is over, well or not."""
    return msgspec.structs.replace(state, restarting=False)


def called_off(state: ReliefState) -> ReliefState:
    """The restart asked for never began: it counts for nothing."""
    return msgspec.structs.replace(
        state, restarting=False, restarted_at=state.restarted_at[:-1], trial=None, useless=(), looks=0, looked=None
    )


def ladder(
    state: ReliefState, backend: str, memory: MemoryView, facts: ReliefFacts, settings: ReliefSettings, now: float
) -> Ladder | None:
    """All steps as they stand at `now`; None: the headroom is not known."""
    unhelped = foresight.unhelped_seconds(facts.restart_seconds, settings.cool_down_seconds)
    waits = foresight.waiting_seconds(memory.seconds_to_limit, 0.0 if facts.held else settings.drain_seconds)
    foreseen = foresight.foreseen_seconds(state.growing, unhelped, now, waits, facts.restart_seconds)
    leaks = unhelped if memory.growth_kind == GrowthKind.LEAK else 0.0
    target = settings.target_headroom_bytes
    return relief_ladder.climb(backend, facts, memory, target, settings.steps, state.useless, foreseen, leaks)


def rest(state: ReliefState, verdict: Verdict, memory: MemoryView, now: float) -> Relief:
    """What `step` says while memory is not near its limit, for which nothing needs to be known of the backend."""
    return _away(_follow(state, memory, now), verdict.memory)


def step(
    state: ReliefState,
    verdict: Verdict,
    memory: MemoryView,
    facts: ReliefFacts,
    settings: ReliefSettings,
    now: float,
) -> Relief:
    """Decide for one backend at `now` (monotonic seconds). Acts on nothing unknown, never twice within a cool-down."""
    if facts.draining:
        return _draining(state, verdict, memory, settings)
    if verdict.memory not in NEAR:
        return rest(state, verdict, memory, now)
    state = _follow(state, memory, now)
    if state.restarting or not facts.ready:
        return Relief(state)
    state, report, rising = _look(state, memory, facts, settings, now)
    decided = _decide(state, verdict, memory, facts, settings, now, rising=rising)
    return msgspec.structs.replace(decided, report=report)


def drain_seconds(state: MemoryState, memory: MemoryView, settings: ReliefSettings) -> float:
    """How long a restart may wait for requests to end: not at all when memory is critical, or its limit would come meanwhile."""
    if state is MemoryState.CRITICAL:
        return 0.0
    if memory.seconds_to_limit is None:
        return settings.drain_seconds
    return max(0.0, min(settings.drain_seconds, memory.seconds_to_limit - END_SECONDS))


def _draining(state: ReliefState, verdict: Verdict, memory: MemoryView, settings: ReliefSettings) -> Relief:
    """The restart was decided on and its process was not told to end yet."""
    if verdict.memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
        return Relief(state, drain_seconds=drain_seconds(verdict.memory, memory, settings))
    if verdict.memory is not MemoryState.OK or not state.restarting:  # a person asked for that one
        return Relief(state)
    report = "the restart was called off before its process was told to end: memory is not near its limit any more"
    return Relief(called_off(state), report=report, call_off=True)


def _follow(state: ReliefState, memory: MemoryView, now: float) -> ReliefState:
    told = None if memory.growth_kind in ENDS_WITH_IT else memory.seconds_to_limit
    growing = foresight.follow(state.growing, told, now)
    return state if growing is state.growing else msgspec.structs.replace(state, growing=growing)


def _away(state: ReliefState, memory: MemoryState) -> Relief:
    """Memory is not near its limit, or that is unknown: then nothing is forgotten but how often it was seen."""
    if state.looks or state.looked is not None:
        state = msgspec.structs.replace(state, looks=0, looked=None)
    if memory is not MemoryState.OK:
        return Relief(state)
    report = None
    if state.trial is not None and not state.restarting:
        report = f"{_names(state.trial.steps)}: memory is not near its limit any more"
    trial = state.trial if state.restarting else None
    return Relief(msgspec.structs.replace(state, exhausted=False, useless=(), trial=trial), report=report)


def _look(
    state: ReliefState, memory: MemoryView, facts: ReliefFacts, settings: ReliefSettings, now: float
) -> tuple[ReliefState, str | None, bool]:
    """The state after another look; what became of the last steps, once that is known; whether headroom rises."""
    headroom, before = memory.headroom_bytes, state.looked
    rising = (
        headroom is not None
        and before is not None
        and now - before[0] <= LOOKS_APART_SECONDS
        and headroom > before[1] + RISING_BYTES
    )
    looked = None if headroom is None else (now, headroom)
    state, report = _judge(state, memory, facts, settings, now)
    return msgspec.structs.replace(state, looks=state.looks + 1, looked=looked), report, rising


def _judge(
    state: ReliefState, memory: MemoryView, facts: ReliefFacts, settings: ReliefSettings, now: float
) -> tuple[ReliefState, str | None]:
    trial = state.trial
    if trial is None or settings.settle_seconds is None or memory.headroom_bytes is None:
        return state, None
    if trial.since is None:
        trial = msgspec.structs.replace(trial, since=now)
        state = msgspec.structs.replace(state, trial=trial)
    assert trial.since is not None
    if now - trial.since < settings.settle_seconds:
        return state, None
    # What others took meanwhile is no fault of the steps: the backend's own memory counts, too.
    own = 0 if trial.own_bytes is None or facts.own_bytes is None else trial.own_bytes - facts.own_bytes
    moved = max(memory.headroom_bytes - trial.headroom_bytes, own)
    names = _names(trial.steps)
    if moved >= max(MOVED_BYTES, MOVED_SHARE * trial.sure_bytes):
        return msgspec.structs.replace(state, trial=None), f"{names}: freed {format_bytes(moved)}"
    useless = tuple(dict.fromkeys((*state.useless, *trial.steps)))
    text = (
        f"{names}: did not move the numbers (headroom {format_bytes(trial.headroom_bytes)} before, "
        f"{format_bytes(memory.headroom_bytes)} after); not done again until memory is well"
    )
    return msgspec.structs.replace(state, trial=None, useless=useless), text


def _decide(
    state: ReliefState,
    verdict: Verdict,
    memory: MemoryView,
    facts: ReliefFacts,
    settings: ReliefSettings,
    now: float,
    *,
    rising: bool,
) -> Relief:
    found = ladder(state, verdict.backend, memory, facts, settings, now)
    if found is None or found.missing_bytes == 0:
        return Relief(state)
    plan = found.restart
    hurry = facts.held or verdict.memory is MemoryState.CRITICAL or 0 < (memory.seconds_to_limit or 0.0) <= ACT_SECONDS
    squeezed = memory.seconds_to_limit is not None and memory.seconds_to_limit <= SQUEEZE_SECONDS
    if squeezed and state.looks < settings.looks and not rising and facts.pausable:
        then = _restart(state, found, memory, facts, settings, verdict, now)
        if then.restart is not None and memory.growth_kind in (*OWN_GROWTH, None):
            return Relief(
                state, would_do=(f"{then.restart.reason}, if that is so while it is paused, too",), pause=True
            )
    looks = 1 if squeezed else settings.looks
    wait = _wait(state, memory, settings, looks, hurry=hurry, rising=rising, held=facts.held)
    if wait is None and facts.behind is not None:
        wait = f"if the restart of {facts.behind} is not enough"
    if wait is not None:
        then = _restart(state, found, memory, facts, settings, verdict, now)
        if then.would_do and not _can_wait(memory, settings):  # it would not be done then either
            return Relief(state, would_do=then.would_do)
        return Relief(state, would_do=() if plan is None else (f"{plan.reason}, {wait}",))
    if found.own and (state.trial is None or not set(_own_names(found)) <= set(state.trial.steps)):
        state = _trying(state, found, memory, facts, now)
        if found.own_suffices or not hurry or plan is None:
            return Relief(state, own=_own_names(found))
        return msgspec.structs.replace(
            _restart(state, found, memory, facts, settings, verdict, now), own=_own_names(found)
        )
    return _restart(state, found, memory, facts, settings, verdict, now)


def _wait(
    state: ReliefState,
    memory: MemoryView,
    settings: ReliefSettings,
    looks: int,
    *,
    hurry: bool,
    rising: bool,
    held: bool,
) -> str | None:
    """What is waited for before anything is done, the end of a sentence; None: it is time."""
    # That a process does not grow while it is stopped says nothing of what it does once it goes on.
    if not held and _can_wait(memory, settings):
        return "if memory goes on growing"
    if rising:
        return "if headroom stops rising"
    if state.looks < looks:
        return "if the next look says the same"
    trial = state.trial
    if trial is None or settings.settle_seconds is None or (hurry and not trial.restart):
        return None
    return f"if that is still so {format_duration(settings.settle_seconds)} after: {_names(trial.steps)}"


def _trying(state: ReliefState, found: Ladder, memory: MemoryView, facts: ReliefFacts, now: float) -> ReliefState:
    sure = sum(step.sure_bytes for step in found.own)
    trial = Trial(_own_names(found), memory.headroom_bytes or 0, facts.own_bytes, sure, restart=False, since=now)
    return msgspec.structs.replace(state, trial=trial)


def _restart(
    state: ReliefState,
    found: Ladder,
    memory: MemoryView,
    facts: ReliefFacts,
    settings: ReliefSettings,
    verdict: Verdict,
    now: float,
) -> Relief:
    """Restart it, or say why not."""
    plan = found.restart
    if plan is None:
        if found.own or not facts.supervised or facts.context_length is None:
            return Relief(state)
        if _only_grows(memory, settings) and verdict.memory is not MemoryState.CRITICAL:
            return Relief(state)  # growth may stop by itself
        return _exhausted(state, f"no step that is left would free enough memory: {_why_none(found)}")
    if not facts.supervised:
        return Relief(
            state,
            would_do=(
                f"{plan.reason}; moetuned does not supervise {verdict.backend}, do it yourself: {yourself(plan, facts)}",
            ),
        )
    if not settings.act:
        return Relief(state, would_do=(f"{plan.reason} (relief.mode is observe)",))
    if facts.obstacle is not None:
        return Relief(state, would_do=(f"{plan.reason}, once it could start again: {facts.obstacle}",))
    recent = tuple(at for at in state.restarted_at if now - at < settings.at_most_seconds)
    if recent and now - recent[-1] < settings.cool_down_seconds:
        left = settings.cool_down_seconds - (now - recent[-1])
        return Relief(state, would_do=(f"{plan.reason}, in {format_duration(left)} (cool-down)",))
    if len(recent) >= settings.at_most:
        return _exhausted(
            state, f"{len(recent)} restarts within {format_duration(settings.at_most_seconds)} are the most allowed"
        )
    sure = sum(step.sure_bytes for step in found.steps if step.taken and step.restart)
    trial = Trial(plan.steps, memory.headroom_bytes or 0, facts.own_bytes, sure, restart=True)
    after = msgspec.structs.replace(state, restarted_at=(*recent, now), restarting=True, exhausted=False, trial=trial)
    drain = 0.0 if facts.held else drain_seconds(verdict.memory, memory, settings)
    end = None if memory.seconds_to_limit is None or drain > 0 else END_SHARE * memory.seconds_to_limit
    return Relief(after, restart=plan, drain_seconds=drain, end_seconds=end)


def yourself(plan: RestartBackend, facts: ReliefFacts) -> str:
    """What the owner can do, in the backend's own words."""
    return f"start it {owner_words(plan, facts.names, facts.slots)}"


def _can_wait(memory: MemoryView, settings: ReliefSettings) -> bool:
    """Whether memory only grows, and its limit is not near yet: growth may stop by itself."""
    far = memory.seconds_to_limit is None or memory.seconds_to_limit > ACT_SECONDS
    return far and _only_grows(memory, settings)


def _only_grows(memory: MemoryView, settings: ReliefSettings) -> bool:
    return memory.headroom_bytes is not None and 0 < settings.near_headroom_bytes <= memory.headroom_bytes


def _exhausted(state: ReliefState, why: str) -> Relief:
    if state.exhausted:
        return Relief(state)
    return Relief(msgspec.structs.replace(state, exhausted=True), exhausted=why)


def _why_none(found: Ladder) -> str:
    """The steps that are not taken though they might free something, with why."""
    said = (f"{step.what}: {step.why_not}" for step in found.steps if step.restart and step.why_not is not None)
    return "; ".join(said)


def _own_names(found: Ladder) -> tuple[StepName, ...]:
    return tuple(step.name for step in found.own)


def _names(steps: tuple[StepName, ...]) -> str:
    return " and ".join(name.value.replace("_", " ") for name in steps)
