"""What to do when memory nears its limit: the smallest restart that helps, at most so often, or say why not.

Pure: `step` takes the state and returns the next one with the restart to make. The KV cache is allocated whole when a
llama.cpp server starts and never grows, and the prompt cache is anonymous memory up to `--cache-ram`; so both are given
up in one restart (each restart reads the whole model once).
"""

from __future__ import annotations

import msgspec

from moetuned.schema.action import RestartBackend
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.units import format_bytes, format_duration
from moetuned.schema.verdict import MemoryState, Verdict

MIB = 1 << 20
CONTEXT_STEP = 256
"""llama.cpp pads the context to a multiple of this (src/llama-context.cpp)."""
WORTHWHILE = 0.1
"""A restart that frees less than this share of what is missing is not worth a full read of the model."""
FORESIGHT_SECONDS = 30.0
"""Memory that grows steadily is taken to go on for this long: until the backend is back and somebody has looked."""
ACT_SECONDS = 15.0
"""Growth alone is reason to act only when the limit is this near: a shorter time than a restart may take is too late."""


class ReliefSettings(msgspec.Struct, frozen=True):
    """How much relief may do.

    `target_headroom_bytes`: headroom to restore, above the near limit so that it stays away. `near_headroom_bytes`: below it
    memory is near its limit whatever it does next.
    """

    act: bool
    at_most: int
    at_most_seconds: float
    cool_down_seconds: float
    target_headroom_bytes: int
    near_headroom_bytes: int = 0


class ReliefFacts(msgspec.Struct, frozen=True):
    """What is known of the backend. `supervised`: moetuned may restart it; `context_changeable`: its command takes one."""

    supervised: bool
    context_changeable: bool
    prompt_cache_changeable: bool
    context_length: int | None
    minimum_context: int
    prompt_cache_mib: int | None
    kv_bytes_per_token: int | None
    ready: bool


class ReliefState(msgspec.Struct, frozen=True):
    """What relief remembers of one backend. `restarted_at`: times (monotonic seconds) of the restarts it asked for."""

    restarted_at: tuple[float, ...] = ()
    restarting: bool = False
    exhausted: bool = False


class Relief(msgspec.Struct, frozen=True):
    """One decision. `exhausted`: set at the tick at which nothing is left to do, the sentence to say."""

    state: ReliefState
    restart: RestartBackend | None = None
    would_do: tuple[str, ...] = ()
    exhausted: str | None = None


def shorter_context(facts: ReliefFacts, deficit_bytes: int) -> int | None:
    """The longest shorter context (tokens) that frees `deficit_bytes`, not below the minimum; None: none is shorter.

    Without a known KV cost it is half of what there is.
    """
    now = facts.context_length
    if now is None or not facts.context_changeable or now <= facts.minimum_context:
        return None
    if facts.kv_bytes_per_token:
        tokens = -(-max(deficit_bytes, 1) // facts.kv_bytes_per_token)
        wanted = (now - tokens) // CONTEXT_STEP * CONTEXT_STEP
    else:
        wanted = now // 2 // CONTEXT_STEP * CONTEXT_STEP
    return max(min(wanted, now - 1), facts.minimum_context)


def fitting_prompt_cache(facts: ReliefFacts, headroom_after_bytes: int) -> int | None:
    """Prompt cache (MiB) that takes at most a quarter of the headroom there will be, in steps of 64; None: leave it."""
    if not facts.prompt_cache_changeable or not facts.prompt_cache_mib:
        return None
    fits = max(headroom_after_bytes, 0) // 4 // MIB // 64 * 64
    return min(facts.prompt_cache_mib, fits)


def plan_restart(
    backend: str, facts: ReliefFacts, memory: MemoryView, target_headroom_bytes: int
) -> RestartBackend | None:
    """The one restart that would bring `target_headroom_bytes` back, or the nearest to it; None: none would help."""
    if memory.headroom_bytes is None or facts.context_length is None:
        return None
    ahead = headroom_ahead_bytes(memory.headroom_bytes, memory.seconds_to_limit)
    deficit = max(target_headroom_bytes - ahead, 1)
    context = shorter_context(facts, deficit)
    new_context = facts.context_length if context is None else context
    per_token = facts.kv_bytes_per_token
    kv_freed = (facts.context_length - new_context) * per_token if per_token else 0
    cache = fitting_prompt_cache(facts, ahead + kv_freed)
    cache_freed = (facts.prompt_cache_mib or 0) * MIB - cache * MIB if cache is not None else 0
    known = per_token is not None or context is None
    if context is None and cache_freed <= 0:
        return None
    if known and kv_freed + cache_freed < WORTHWHILE * (target_headroom_bytes - memory.headroom_bytes):
        return None
    frees = kv_freed + cache_freed if known else None
    parts = []
    if context is not None:
        parts.append(f"context {facts.context_length} -> {new_context}")
    if cache is not None and cache_freed > 0:
        parts.append(f"prompt cache {facts.prompt_cache_mib} -> {cache} MiB")
    what = " and ".join(parts)
    about = f", frees up to {format_bytes(frees)}" if frees is not None else ""
    return RestartBackend(
        backend=backend,
        context_length=new_context,
        prompt_cache_mib=cache,
        reason=f"headroom {format_bytes(memory.headroom_bytes)}: restart with {what}{about}",
        frees_bytes=frees,
    )


def headroom_ahead_bytes(headroom_bytes: int, seconds_to_limit: float | None) -> int:
    """Headroom (may be negative) after `FORESIGHT_SECONDS` of the growth that reaches the limit in that time."""
    if not seconds_to_limit:
        return headroom_bytes
    return int(headroom_bytes * (1 - FORESIGHT_SECONDS / seconds_to_limit))


def restarted(state: ReliefState) -> ReliefState:
    """The restart asked for is over, well or not."""
    return msgspec.structs.replace(state, restarting=False)


def step(
    state: ReliefState,
    verdict: Verdict,
    memory: MemoryView,
    facts: ReliefFacts,
    settings: ReliefSettings,
    now: float,
) -> Relief:
    """Decide for one backend at `now` (monotonic seconds). Acts on nothing unknown, never twice within a cool-down."""
    if verdict.memory not in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
        recovered = verdict.memory == MemoryState.OK and state.exhausted
        return Relief(msgspec.structs.replace(state, exhausted=False) if recovered else state)
    if state.restarting or not facts.ready:
        return Relief(state)
    plan = plan_restart(verdict.backend, facts, memory, settings.target_headroom_bytes)
    if _can_wait(memory, settings):
        return Relief(state, would_do=() if plan is None else (f"{plan.reason}, if memory goes on growing",))
    if plan is None:
        if not facts.supervised or facts.context_length is None:
            return Relief(state)
        return _exhausted(state, "no shorter context or smaller prompt cache would free enough memory")
    if not facts.supervised:
        return Relief(
            state, would_do=(f"{plan.reason}; moetuned does not supervise {verdict.backend}, do it yourself",)
        )
    if not settings.act:
        return Relief(state, would_do=(f"{plan.reason} (relief.mode is observe)",))
    recent = tuple(at for at in state.restarted_at if now - at < settings.at_most_seconds)
    if recent and now - recent[-1] < settings.cool_down_seconds:
        left = settings.cool_down_seconds - (now - recent[-1])
        return Relief(state, would_do=(f"{plan.reason}, in {format_duration(left)} (cool-down)",))
    if len(recent) >= settings.at_most:
        return _exhausted(
            state, f"{len(recent)} restarts within {format_duration(settings.at_most_seconds)} are the most allowed"
        )
    return Relief(ReliefState(restarted_at=(*recent, now), restarting=True), restart=plan)


def _can_wait(memory: MemoryView, settings: ReliefSettings) -> bool:
    """Whether memory only grows, and its limit is not near yet: growth may stop by itself."""
    if memory.headroom_bytes is None or memory.headroom_bytes < settings.near_headroom_bytes:
        return False
    return settings.near_headroom_bytes > 0 and (
        memory.seconds_to_limit is None or memory.seconds_to_limit > ACT_SECONDS
    )


def _exhausted(state: ReliefState, why: str) -> Relief:
    if state.exhausted:
        return Relief(state)
    return Relief(msgspec.structs.replace(state, exhausted=True), exhausted=why)
