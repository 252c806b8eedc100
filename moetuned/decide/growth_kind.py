"""What the memory is that grows: weights being loaded, buffers of a start, the prompt cache, a leak, or somebody else's.

What llama.cpp allocates (measured, and `llm-backends`): repacked weights while it loads, at the pace at which they are read; the KV
cache whole when it starts; some buffers with the first requests; after that only the prompt cache (`--cache-ram`) and context
checkpoints, in steps with requests. So growth while nothing is asked, or beyond what these may take, is none of them. Where the
evidence does not tell, the kind is unknown.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moetuned.decide.facts import BackendFacts
from moetuned.decide.limit_lowered import LimitState, lowered_text, step_limits
from moetuned.schema.sample import BackendSample
from moetuned.schema.signals import Signals
from moetuned.schema.units import format_bytes, format_duration, format_rate
from moetuned.schema.verdict import Phase

LEAST_BYTES_PER_SECOND = 1e6
"""Slower growth is none that anybody waits for;"""
LEAST_BYTES = 32 << 20
"""nor is less than this since it was ready."""
OTHERS_SHARE = 0.7
"""Whose growth makes up this share of the whole, of it is spoken."""
START_SECONDS = 60.0
START_REQUESTS = 2
"""Buffers are touched for the first time with the first requests."""
IDLE_SECONDS = 20.0
IDLE_SETTLES_SECONDS = 3.0
"""What a request allocates at its end may be seen just after it."""
IDLE_SHARE = 0.2
BOUND_SLACK = 1.25
"""Prompt caches are bounded by the size of their states; heap fragments come on top."""
MANY_REQUESTS, MUCH_MORE = 20, 2.0
"""Beyond so many times its bound after so many requests it is no prompt cache."""
LONG_DECODE_SECONDS = 10.0
"""A prompt cache grows at the ends of requests and checkpoints with their prompts, nothing while it only generates."""
BETWEEN_SECONDS = 30.0
"""Its own growth is seen over five seconds; from one request, at whose end it grows, to the next it may take so long."""
SQUEEZED_SECONDS = 30.0
SOON_SECONDS = 60.0
"""Growth of others, outside its cgroup, is spoken of only when a limit that is shared would be reached within this time."""
YOUNG_SECONDS = 300.0
READ_SHARE = 0.7
"""Weights that are repacked are read first: growth at the pace of the reads is loading where nobody can be asked."""


class GrowthKind(StrEnum):
    """`neighbour`: another process in the backend's cgroup; `outside`: others below a limit that it shares, or on the machine."""

    NONE = "none"
    LOADING = "loading"
    START = "start"
    PROMPT_CACHE = "prompt_cache"
    LEAK = "leak"
    NEIGHBOUR = "neighbour"
    OUTSIDE = "outside"
    UNKNOWN = "unknown"


OWN = (GrowthKind.START, GrowthKind.PROMPT_CACHE, GrowthKind.LEAK)
"""The backend's own, and none of anybody else."""


class Growth(msgspec.Struct, frozen=True):
    """What grows now, or grew last; `text` is one clause for people, with what speaks for it."""

    kind: GrowthKind = GrowthKind.NONE
    text: str = ""


class GrowthState(msgspec.Struct, frozen=True):
    """What is remembered of one process: bytes it had when it was ready (`base_bytes`), what it grew by since, in all and while
    nothing was asked of it, how long that was, and how many requests it has had (`task`: the newest). `decode_seconds`: for how long it
    has only generated; `paused_seconds`: for how long it has not grown itself.
    """

    process: tuple[int, int | None] | None = None
    ready_seconds: float | None = None
    base_bytes: int | None = None
    last_bytes: int | None = None
    idle_bytes: int = 0
    idle_seconds: float = 0.0
    idle_for_seconds: float = 0.0
    requests: int = 0
    task: int = -1
    decode_seconds: float = 0.0
    paused_seconds: float = 0.0
    growth: Growth = Growth()
    last: Growth = Growth()
    """What grew last, and how long ago."""
    last_seconds: float = 0.0
    limits: LimitState = LimitState()


def step_growth(
    state: GrowthState, signals: Signals, sample: BackendSample, phase: Phase, facts: BackendFacts
) -> GrowthState:
    """The next state; `growth` of it is the answer at this tick. Unknown figures add nothing."""
    process = sample.process
    if process is None:
        return GrowthState()
    identity = (process.pid, process.start_ticks)
    if identity != state.process:
        state = GrowthState(process=identity)
    own = None if process.rss_anon_bytes is None else process.rss_anon_bytes + (process.swap_bytes or 0)
    state = _count(state, own, phase, _newest_task(sample), min(signals.dt_seconds or 0.0, 5.0))
    grows = (signals.get("anonymous_growth_bytes_per_second") or 0.0) > LEAST_BYTES_PER_SECOND
    state = msgspec.structs.replace(
        state,
        limits=step_limits(state.limits, sample, signals.dt_seconds or 0.0),
        paused_seconds=0.0 if grows else state.paused_seconds + (signals.dt_seconds or 0.0),
    )
    age = None
    if process.start_ticks is not None:
        age = signals.at_seconds - process.start_ticks / facts.clock_ticks
    growth = _growth(state, signals, sample, phase, facts, age)
    if growth.kind is GrowthKind.NONE:
        return msgspec.structs.replace(
            state, growth=growth, last_seconds=state.last_seconds + (signals.dt_seconds or 0.0)
        )
    return msgspec.structs.replace(state, growth=growth, last=growth, last_seconds=0.0)


def squeezed_by(state: GrowthState) -> str | None:
    """What took the page cache that was lost: a limit that was lowered, or what grew in the last half minute; None: nothing known."""
    if (lowered := lowered_text(state.limits)) is not None:
        return f"what took it: {lowered}"
    if state.last.kind is GrowthKind.NONE or state.last_seconds > SQUEEZED_SECONDS:
        return None
    return f"what takes it: {state.last.text}"


def is_loading(growth: Growth) -> bool:
    """Whether what grows ends by itself with the loading."""
    return growth.kind is GrowthKind.LOADING


def _newest_task(sample: BackendSample) -> int:
    slots = (sample.http.slots if sample.http is not None else None) or ()
    return max((slot.task_id for slot in slots if slot.processing and slot.task_id is not None), default=-1)


def _count(state: GrowthState, own: int | None, phase: Phase, task: int, dt: float) -> GrowthState:
    working, idle = phase in (Phase.PREFILL, Phase.DECODE), phase is Phase.IDLE
    if not working and not idle and state.ready_seconds is None:
        return msgspec.structs.replace(state, last_bytes=own)
    first = state.ready_seconds is None
    idle_for = state.idle_for_seconds + dt if idle and not first else 0.0
    change = 0 if own is None or state.last_bytes is None or first else own - state.last_bytes
    settled = idle_for > IDLE_SETTLES_SECONDS
    return msgspec.structs.replace(
        state,
        ready_seconds=0.0 if state.ready_seconds is None else state.ready_seconds + dt,
        base_bytes=own if state.base_bytes is None else state.base_bytes,
        last_bytes=state.last_bytes if own is None else own,
        idle_bytes=state.idle_bytes + change if settled else state.idle_bytes,
        idle_seconds=state.idle_seconds + dt if settled else state.idle_seconds,
        idle_for_seconds=idle_for,
        requests=state.requests + (task > state.task),
        task=max(task, state.task),
        decode_seconds=state.decode_seconds + dt if phase is Phase.DECODE and task <= state.task else 0.0,
    )


def _growth(
    state: GrowthState,
    signals: Signals,
    sample: BackendSample,
    phase: Phase,
    facts: BackendFacts,
    age: float | None,
) -> Growth:
    own = signals.get("anonymous_growth_bytes_per_second")
    others = signals.get("others_growth_bytes_per_second")
    seconds = signals.get("seconds_to_limit")
    soon = seconds is not None and seconds <= SOON_SECONDS
    towards = signals.get("growth_to_limit_bytes_per_second") if soon else None
    if phase is Phase.LOADING:
        return _loading(own) if own is not None and own > LEAST_BYTES_PER_SECOND else Growth()
    if own is None:
        text = "memory grows; whose it is cannot be told, since the backend's own is unknown"
        return Growth(GrowthKind.UNKNOWN, text) if towards is not None else Growth()
    if _reads_weights(signals, phase, own, age):
        return _loading(own)
    mine, theirs = max(0.0, own), max(0.0, others or 0.0)
    if max(mine + theirs, towards or 0.0) <= LEAST_BYTES_PER_SECOND:
        return Growth() if state.growth.kind is GrowthKind.LOADING else _lasting(state, soon=soon)
    if theirs >= OTHERS_SHARE * (mine + theirs) and theirs > LEAST_BYTES_PER_SECOND:
        return _theirs(theirs, sample)
    beyond = _beyond(signals, towards, theirs)
    if beyond > LEAST_BYTES_PER_SECOND and beyond >= OTHERS_SHARE * max(towards or 0.0, mine + theirs):
        return _outside(beyond)
    if mine > LEAST_BYTES_PER_SECOND:
        growth = _own(state, facts, phase, mine)
        return growth if beyond <= LEAST_BYTES_PER_SECOND else _both(growth, beyond)
    if towards is not None and state.last.kind in OWN and state.paused_seconds <= BETWEEN_SECONDS:
        return state.last
    if towards is not None and state.limits.lowered is None:
        return _outside(towards)
    return _lasting(state, soon=soon)


def _beyond(signals: Signals, towards: float | None, theirs: float) -> float:
    """What others outside its cgroup are seen to add to the growth towards a limit that is near; 0 where that is unknown."""
    shared = signals.get("others_growth_to_limit_bytes_per_second")
    return 0.0 if towards is None or shared is None else max(0.0, min(shared, towards) - theirs)


def _outside(rate: float) -> Growth:
    text = f"a limit that is shared fills at {format_rate(rate)}, from outside the backend's cgroup"
    return Growth(GrowthKind.OUTSIDE, text)


def _both(growth: Growth, beyond: float) -> Growth:
    """Its own, with what others add: a growth that is told by its kind alone would be taken to end with the backend."""
    others = f"; others outside its cgroup add {format_rate(beyond)} towards the same limit"
    return msgspec.structs.replace(growth, text=growth.text + others)


def _lasting(state: GrowthState, *, soon: bool) -> Growth:
    """Between two steps of a growth it is still that growth; else nothing grows."""
    return state.growth if soon else Growth()


def _loading(own: float) -> Growth:
    return Growth(
        GrowthKind.LOADING,
        f"it loads and copies what it reads into its own memory ({format_rate(own)}): repacked weights, then the KV cache",
    )


def _reads_weights(signals: Signals, phase: Phase, own: float, age: float | None) -> bool:
    read = signals.get("process_read_bytes_per_second")
    young = age is not None and 0 <= age < YOUNG_SECONDS
    return phase is Phase.UNKNOWN and young and own > LEAST_BYTES_PER_SECOND and (read or 0.0) >= READ_SHARE * own


def _theirs(theirs: float, sample: BackendSample) -> Growth:
    if sample.cgroup is None:
        text = f"other programs on the machine grow by {format_rate(theirs)}, the backend does not"
        return Growth(GrowthKind.OUTSIDE, text)
    text = f"another process in the backend's cgroup grows by {format_rate(theirs)}, the backend does not"
    return Growth(GrowthKind.NEIGHBOUR, text)


def _own(state: GrowthState, facts: BackendFacts, phase: Phase, mine: float) -> Growth:
    """The backend's own growth after it has loaded."""
    if state.ready_seconds is None or state.base_bytes is None or state.last_bytes is None:
        return Growth(GrowthKind.UNKNOWN, f"the backend itself grows by {format_rate(mine)}; what it does is unknown")
    since = max(0, state.last_bytes - state.base_bytes)
    about = f"the backend itself grew by {format_bytes(since)} over {_requests(state)} in {format_duration(state.ready_seconds)}"
    if state.ready_seconds <= START_SECONDS and state.requests <= START_REQUESTS and state.idle_bytes < LEAST_BYTES:
        return Growth(GrowthKind.START, f"{about}: buffers that are used for the first time")
    if _grows_idle(state, since):
        idle = f"{format_bytes(state.idle_bytes)} of it while nothing was asked of it, for {format_duration(state.idle_seconds)}"
        return Growth(GrowthKind.LEAK, f"{about}, {idle}: a leak, since no cache grows then")
    if phase is Phase.DECODE and state.decode_seconds > LONG_DECODE_SECONDS:
        return Growth(GrowthKind.UNKNOWN, f"{about}, and goes on while it only generates, when no cache of it grows")
    most = facts.prompt_cache_bytes
    if most is None:
        return Growth(GrowthKind.UNKNOWN, f"{about}; how much its prompt cache may take is unknown")
    if since <= BOUND_SLACK * most and state.requests:
        return Growth(
            GrowthKind.PROMPT_CACHE,
            f"{about}: its prompt cache (--cache-ram), which may take {format_bytes(most)}, or context checkpoints",
        )
    more = f"{about}, more than the {format_bytes(most)} its prompt cache may take"
    if state.requests >= MANY_REQUESTS and since > MUCH_MORE * most:
        return Growth(GrowthKind.LEAK, f"{more}: a leak")
    return Growth(GrowthKind.UNKNOWN, f"{more}: context checkpoints (--ctx-checkpoints) or a leak")


def _grows_idle(state: GrowthState, since: int) -> bool:
    return (
        state.idle_seconds >= IDLE_SECONDS
        and state.idle_bytes >= LEAST_BYTES
        and state.idle_for_seconds > IDLE_SETTLES_SECONDS
        and state.idle_bytes >= IDLE_SHARE * since
    )


def _requests(state: GrowthState) -> str:
    return f"{state.requests} request{'' if state.requests == 1 else 's'}"
