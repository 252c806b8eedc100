"""Giving back what relief took, once memory has been ample for long and nobody uses the backend.

Pure: `step` takes the state and returns the next one with what to start the backend with, and a sentence for people. A return costs a full
read of the model, as any restart does, so it is one large step: as much as surely fits, in the order in which relief took it, backwards
(the context first, the prompt cache last), and nothing that would change little. It surely fits where the least headroom of the last
ten minutes has room for it, for all that the caches may still grow by, for what relief would restore, and for a margin. When memory nears
its limit within an hour of a return, that was too much, and nothing is given back again until a person wants it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moetuned.decide.relief_ladder import CONTEXT_STEP, SMALL_TYPE
from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.units import format_bytes, format_duration
from moetuned.schema.verdict import MemoryState

AMPLE_SECONDS = 600.0
"""Memory has to have been well for so long,"""
IDLE_SECONDS = 300.0
"""and the backend idle for so long: who reads an answer asks again within minutes."""
APART_SECONDS = 3600.0
"""No two returns within this time,"""
WATCH_SECONDS = 3600.0
"""and a return is to blame for memory that nears its limit within this time."""
WORTHWHILE_FACTOR = 1.25
"""A context that does not grow by a quarter is not worth a full read of the model, unless it is all that was taken."""
_LOW_SECONDS = 60.0
"""The least headroom is kept for each minute."""
_CACHE_STEP_MIB = 64

Cost = Callable[[LaunchPlan], int | None]
"""Bytes of the KV cache, the prompt cache and the checkpoints at their largest; None: unknown."""


class ReturnSettings(msgspec.Struct, frozen=True):
    """`allowed`: by the config. `target_headroom_bytes`: what relief restores; `margin_bytes`: what is left beyond that."""

    allowed: bool
    target_headroom_bytes: int
    margin_bytes: int


class ReturnState(msgspec.Struct, frozen=True):
    """What is remembered of one backend, times in monotonic seconds.

    `ok_since`: since when memory is well; `lows`: the least headroom of each minute since then; `idle_since`: since when nothing is
    asked. `returned_at`: of the last return. `blocked`: why nothing is given back any more; None: it may be.
    """

    ok_since: float | None = None
    lows: tuple[tuple[int, int], ...] = ()
    idle_since: float | None = None
    returned_at: float | None = None
    blocked: str | None = None


class ReturnFacts(msgspec.Struct, frozen=True):
    """One look. `idle` None: unknown. `against`: what speaks against a restart now, the end of "once …"; None: nothing.

    `now`: what it runs with, `wanted`: what the config wants of what a restart can set. `cache_left_bytes`: what its caches may still
    grow by; None: unknown.
    """

    memory: MemoryState
    headroom_bytes: int | None
    idle: bool | None
    against: str | None
    now: LaunchPlan
    wanted: LaunchPlan
    cost: Cost
    cache_left_bytes: int | None


class Return(msgspec.Struct, frozen=True):
    """`plan`: what to start it with now. `text`: what would be given back and what is waited for; None: nothing was taken."""

    state: ReturnState
    plan: LaunchPlan | None = None
    text: str | None = None


def step(state: ReturnState, facts: ReturnFacts, settings: ReturnSettings, now: float) -> Return:
    """Decide at `now` (monotonic seconds). Acts on nothing unknown; that it was done, `returned` is told."""
    state = _follow(state, facts, now)
    if facts.memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
        state = _blame(state, now)
    if not settings.allowed or not changes(facts.now, facts.wanted):
        return Return(state)
    all_of_it = " and ".join(changes(facts.now, facts.wanted))
    if state.blocked is not None:
        return Return(state, text=f"does not give back {all_of_it}: {state.blocked}")
    room = _room_bytes(state, facts, settings)
    if room is None:
        return Return(state, text=f"does not give back {all_of_it}: {_unknown(facts)}")
    plan = largest(facts, room)
    if plan is None:
        needs = f"{format_bytes(max(0, room))} are to spare at the least headroom of the last {format_duration(AMPLE_SECONDS)}"
        return Return(state, text=f"would give back {all_of_it} when more memory is free: {needs}")
    what = " and ".join(changes(facts.now, plan))
    waits = _waits(state, facts, now)
    if waits:
        return Return(state, text=f"would give back {what} {' and '.join(waits)}")
    return Return(state, plan, f"gives back {what}")


def returned(now: float) -> ReturnState:
    """A return has begun: what was seen before it says nothing of what comes."""
    return ReturnState(returned_at=now)


def blocked(state: ReturnState, why: str) -> ReturnState:
    """Nothing is given back any more."""
    return msgspec.structs.replace(state, blocked=why)


def allowed(state: ReturnState) -> ReturnState:
    """A person wants it, or another config: what was blocked is no more."""
    return msgspec.structs.replace(state, blocked=None)


def changes(now: LaunchPlan, then: LaunchPlan) -> tuple[str, ...]:
    """What `then` gives back of what `now` lacks, for people, in the order in which it is given back."""
    said = []
    if then.context_length > now.context_length:
        said.append(f"context {now.context_length} -> {then.context_length}")
    if now.cache_type == SMALL_TYPE and then.cache_type not in (None, SMALL_TYPE):
        said.append(f"KV cache {now.cache_type} -> {then.cache_type}")
    if _more(then.slots, now.slots):
        said.append(f"slots {now.slots} -> {then.slots}")
    if _more(then.checkpoints, now.checkpoints):
        said.append(f"context checkpoints {now.checkpoints} -> {then.checkpoints} a slot")
    if _more(then.prompt_cache_mib, now.prompt_cache_mib):
        said.append(f"prompt cache {now.prompt_cache_mib} -> {then.prompt_cache_mib} MiB")
    return tuple(said)


def largest(facts: ReturnFacts, room_bytes: int) -> LaunchPlan | None:
    """As much of what is wanted as costs no more than `room_bytes` beyond what it runs with; None: nothing that is worth a restart."""
    before = facts.cost(facts.now)
    if before is None:
        return None

    def fits(plan: LaunchPlan) -> bool:
        cost = facts.cost(plan)
        return cost is not None and cost - before <= room_bytes

    plan = _with_context(facts.now, facts.wanted, fits)
    whole = plan.context_length >= facts.wanted.context_length
    if not whole and plan.context_length < WORTHWHILE_FACTOR * facts.now.context_length:
        return None  # The rest is worth less than the context, and its turn comes after it.
    for more in _others(facts.now, facts.wanted) if whole else ():
        larger = msgspec.structs.replace(plan, **more)
        if fits(larger):
            plan = larger
    if whole and _more(facts.wanted.prompt_cache_mib, plan.prompt_cache_mib):
        plan = _with_cache(plan, facts, fits)
    return plan if changes(facts.now, plan) else None


def _with_context(now: LaunchPlan, wanted: LaunchPlan, fits: Callable[[LaunchPlan], bool]) -> LaunchPlan:
    """The longest context that fits, up to the wanted one."""

    def having(tokens: int) -> LaunchPlan:
        return msgspec.structs.replace(now, context_length=tokens)

    if wanted.context_length <= now.context_length or fits(having(wanted.context_length)):
        return having(max(now.context_length, wanted.context_length))
    low, high = -(-now.context_length // CONTEXT_STEP), -(-wanted.context_length // CONTEXT_STEP)
    if not fits(having(low * CONTEXT_STEP)):
        return now
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(having(middle * CONTEXT_STEP)) else (low, middle)
    return having(max(now.context_length, low * CONTEXT_STEP))


def _others(now: LaunchPlan, wanted: LaunchPlan) -> tuple[dict[str, object], ...]:
    """What is given back whole or not at all, in order."""
    found: list[dict[str, object]] = []
    if now.cache_type == SMALL_TYPE and wanted.cache_type not in (None, SMALL_TYPE):
        found.append({"cache_type": wanted.cache_type})
    if _more(wanted.slots, now.slots):
        found.append({"slots": wanted.slots})
    if _more(wanted.checkpoints, now.checkpoints):
        found.append({"checkpoints": wanted.checkpoints})
    return tuple(found)


def _with_cache(plan: LaunchPlan, facts: ReturnFacts, fits: Callable[[LaunchPlan], bool]) -> LaunchPlan:
    """The largest prompt cache that fits: all of it, or at least twice what there is, unless something else is given back anyway."""
    now, wanted = plan.prompt_cache_mib or 0, facts.wanted.prompt_cache_mib or 0

    def having(mib: int) -> LaunchPlan:
        return msgspec.structs.replace(plan, prompt_cache_mib=mib)

    if fits(having(wanted)):
        return having(wanted)
    low, high = now // _CACHE_STEP_MIB, -(-wanted // _CACHE_STEP_MIB)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(having(middle * _CACHE_STEP_MIB)) else (low, middle)
    found = low * _CACHE_STEP_MIB
    worthwhile = found >= max(2 * now, _CACHE_STEP_MIB) or (found > now and bool(changes(facts.now, plan)))
    return having(found) if worthwhile else plan


def _more(then: int | None, now: int | None) -> bool:
    return then is not None and now is not None and then > now


def _follow(state: ReturnState, facts: ReturnFacts, now: float) -> ReturnState:
    idle = (now if state.idle_since is None else state.idle_since) if facts.idle else None
    if facts.memory is not MemoryState.OK or facts.headroom_bytes is None:
        return msgspec.structs.replace(state, ok_since=None, lows=(), idle_since=idle)
    minute = int(now // _LOW_SECONDS)
    lows = tuple(one for one in state.lows if (minute - one[0]) * _LOW_SECONDS <= AMPLE_SECONDS)
    if lows and lows[-1][0] == minute:
        lows = (*lows[:-1], (minute, min(lows[-1][1], facts.headroom_bytes)))
    else:
        lows = (*lows, (minute, facts.headroom_bytes))
    since = now if state.ok_since is None else state.ok_since
    return msgspec.structs.replace(state, ok_since=since, lows=lows, idle_since=idle)


def _blame(state: ReturnState, now: float) -> ReturnState:
    if state.blocked is not None or state.returned_at is None or now - state.returned_at > WATCH_SECONDS:
        return state
    after = format_duration(max(1.0, round(now - state.returned_at)))
    return blocked(state, f"memory neared its limit {after} after something was given back")


def _room_bytes(state: ReturnState, facts: ReturnFacts, settings: ReturnSettings) -> int | None:
    if not state.lows or facts.cache_left_bytes is None or facts.cost(facts.now) is None:
        return None
    least = min(low for _, low in state.lows)
    return least - facts.cache_left_bytes - settings.target_headroom_bytes - settings.margin_bytes


def _unknown(facts: ReturnFacts) -> str:
    if facts.memory is not MemoryState.OK:
        return f"memory is {facts.memory.value.replace('_', ' ')}"
    if facts.headroom_bytes is None:
        return "the headroom is not known"
    return "what it would cost is not known"


def _waits(state: ReturnState, facts: ReturnFacts, now: float) -> list[str]:
    said = []
    well = AMPLE_SECONDS - (now - (now if state.ok_since is None else state.ok_since))
    if well > 0:
        said.append(f"when memory has been well for {_left(well)} more")
    if facts.idle is None:
        said.append("when it is known to be idle")
    elif not facts.idle or state.idle_since is None:
        said.append(f"when it has been idle for {format_duration(IDLE_SECONDS)}")
    elif (idle := IDLE_SECONDS - (now - state.idle_since)) > 0:
        said.append(f"when it has been idle for {_left(idle)} more")
    if state.returned_at is not None and (apart := APART_SECONDS - (now - state.returned_at)) > 0:
        said.append(f"no sooner than in {_left(apart)}, an hour after the last return")
    if facts.against is not None:
        said.append(f"once {facts.against}")
    return said


def _left(seconds: float) -> str:
    return format_duration(max(1.0, round(seconds)))
