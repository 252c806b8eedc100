"""Which prompt to send to a backend next, when to wait, and when to stop for good. Pure: a state machine, `now` is an argument.

Prompts of many topics make the router choose, and so bring in, experts that people will use. They are sent one after the other to a
backend that has just been started and that nobody has asked anything yet. As soon as somebody does, the one that runs is cancelled and no
other follows: what they ask warms exactly what they need, and a prompt of ours would take a slot whose cache is theirs. Unknown sends
nothing. Nothing is sent to a sleeping server, while it thrashes, or when memory is near its limit.
"""

from __future__ import annotations

import msgspec

from moetuned.schema.sample import BackendHttp
from moetuned.schema.verdict import MemoryState, Paging, Phase

ENDED_GRACE_SECONDS = 1.5
"""What the backend says may be this old: a slot that is busy this soon after ours ended may still be ours."""


class PromptSettings(msgspec.Struct, frozen=True):
    """Bounds. Seconds: of all from the first prompt on, of one prompt, and of waiting for a chance to begin. Tokens: of all."""

    total_seconds: float = 60.0
    one_seconds: float = 15.0
    wait_seconds: float = 600.0
    total_tokens: int = 8192
    predict_tokens: int = 16
    failures: int = 2


class PromptEnd(msgspec.Struct, frozen=True):
    """How a prompt ended: tokens it cost, and why it failed (None: it did not)."""

    tokens: int = 0
    error: str | None = None


class PromptSight(msgspec.Struct, frozen=True):
    """What is seen of the backend at this tick. `http` came at `http_at` (seconds, same clock as `now`).

    `busy` says why it is better left alone at the moment, e.g. "its model is being warmed"; None: nothing speaks against it.
    """

    phase: Phase
    paging: Paging
    memory: MemoryState
    http: BackendHttp | None
    http_at: float | None
    busy: str | None = None


class PromptWarmup(msgspec.Struct, frozen=True):
    """Where it is. `count` prompts in all, `next_index` comes next; `sent_at` None: none of ours runs.

    `failures` in a row, the last because of `error`. `outcome` is None until it is over, then one sentence; `sent` counts prompts that were answered.
    """

    count: int
    wanted_at: float
    next_index: int = 0
    sent: int = 0
    tokens: int = 0
    failures: int = 0
    error: str | None = None
    began_at: float | None = None
    sent_at: float | None = None
    ended_at: float | None = None
    outcome: str | None = None


class PromptStep(msgspec.Struct, frozen=True):
    """The next state and what to do: send the prompt `send`, or `cancel` the one that runs (close its connection now).

    `detail` is one sentence: what happens, or what it waits for.
    """

    state: PromptWarmup
    send: int | None
    cancel: bool
    detail: str


def begin(count: int, now: float) -> PromptWarmup:
    """A warm-up with `count` prompts that is wanted from now on."""
    return PromptWarmup(count, now)


def step(
    state: PromptWarmup,
    seen: PromptSight,
    now: float,
    ended: PromptEnd | None = None,
    settings: PromptSettings = PromptSettings(),  # noqa: B008
) -> PromptStep:
    """One tick. `ended`: how the prompt that ran has ended since the last; None: it has not, or none runs.

    A cancelled prompt is not reported as ended: after `cancel` the state holds none that runs.
    """
    if state.outcome is not None:
        return PromptStep(state, None, False, state.outcome)
    if ended is not None and state.sent_at is not None:
        state = _after(state, ended, now)
    over = _over(state, seen, now, settings)
    if over is not None:
        return _finish(state, now, over)
    if state.sent_at is not None:
        if now - state.sent_at < settings.one_seconds:
            return PromptStep(state, None, False, f"prompt {state.next_index + 1} of {state.count} runs")
        late = PromptEnd(error=f"a prompt took longer than {settings.one_seconds:.0f} s")
        state = _after(state, late, now)
        over = _over(state, seen, now, settings)
        stepped = PromptStep(state, None, True, "a prompt took too long") if over is None else _finish(state, now, over)
        return msgspec.structs.replace(stepped, cancel=True)
    waits = _waits(state, seen)
    if waits is not None:
        return PromptStep(state, None, False, f"waits: {waits}")
    began = now if state.began_at is None else state.began_at
    state = msgspec.structs.replace(state, began_at=began, sent_at=now)
    return PromptStep(state, state.next_index, False, f"prompt {state.next_index + 1} of {state.count} is sent")


def others_busy(http: BackendHttp | None, *, ours_least: int, ours_most: int) -> bool | None:
    """Whether the backend works for somebody else or somebody waits; None: it cannot be told.

    Between `ours_least` and `ours_most` of the requests in it are ours. A waiting request shows in no slot: with one slot only the
    metric requests_deferred tells of it, and without --metrics that is unknown.
    """
    if http is None:
        return None
    if not http.slots_asked:
        # Not asked because its process uses no CPU and the question would keep it from sleeping (`host.backend_http`).
        return False if http.sleeping is False else None
    if http.requests_deferred:
        return True
    if http.slots is not None:
        flags = [slot.processing for slot in http.slots]
        at_least, unknown = flags.count(True), flags.count(None)
        if at_least > ours_most:
            return True
        hidden = http.requests_deferred is None and len(flags) < 2
        return None if unknown or hidden or at_least > ours_least else False
    if http.requests_processing is None or http.requests_deferred is None:
        return None
    if http.requests_processing > ours_most:
        return True
    return None if http.requests_processing > ours_least else False


def was_used(http: BackendHttp | None) -> bool:
    """Whether anybody has had an answer from it since it was started."""
    if http is None:
        return False
    counted = any((http.prompt_tokens_total, http.tokens_predicted_total))
    return counted or any(slot.task_id is not None for slot in http.slots or ())


def _others(state: PromptWarmup, seen: PromptSight) -> bool | None:
    if state.sent_at is not None:
        return others_busy(seen.http, ours_least=1, ours_most=1)
    ended, asked = state.ended_at, seen.http_at
    recent = ended is not None and (asked is None or asked < ended + ENDED_GRACE_SECONDS)
    return others_busy(seen.http, ours_least=0, ours_most=1 if recent else 0)


def _over(state: PromptWarmup, seen: PromptSight, now: float, settings: PromptSettings) -> str | None:
    """Why it is over for good, one sentence; None: it goes on."""
    if state.failures >= settings.failures:
        return f"stopped: {state.error}"
    if seen.phase in (Phase.ABSENT, Phase.LOADING):
        return "stopped: the backend is not ready any more"
    if state.began_at is None and was_used(seen.http):
        return "not begun: somebody has asked it something already"
    if _others(state, seen):
        return "stopped: somebody else asks it something, which warms what they need"
    if seen.memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
        return "stopped: memory is near its limit"
    if seen.paging is Paging.THRASHING:
        return "stopped: the backend is thrashing"
    if seen.http is not None and seen.http.sleeping:
        return "stopped: the backend sleeps"
    if state.next_index >= state.count:
        return "all prompts were sent"
    if state.tokens >= settings.total_tokens:
        return f"its {settings.total_tokens} tokens are used up"
    if state.began_at is not None and now - state.began_at >= settings.total_seconds:
        return f"its {settings.total_seconds:.0f} s are over"
    if state.began_at is None and now - state.wanted_at >= settings.wait_seconds:
        return f"not begun: for {settings.wait_seconds:.0f} s there was no chance ({_waits(state, seen) or 'now there is'})"
    return None


def _waits(state: PromptWarmup, seen: PromptSight) -> str | None:
    if seen.busy is not None:
        return seen.busy
    if seen.phase is not Phase.IDLE:
        return f"the backend is not known to be idle (its phase is {seen.phase})"
    if seen.memory is not MemoryState.OK:
        return "how near memory is to its limit is unknown"
    if _others(state, seen) is None:
        http = seen.http
        if http is not None and http.slots is not None and len(http.slots) < 2 and http.requests_deferred is None:
            return "with one slot and without --metrics it cannot be seen whether somebody waits"
        return "whether somebody else asks it something is unknown"
    return None


def _after(state: PromptWarmup, ended: PromptEnd, now: float) -> PromptWarmup:
    failures = 0 if ended.error is None else state.failures + 1
    return msgspec.structs.replace(
        state,
        next_index=state.next_index + 1,
        sent=state.sent + (ended.error is None),
        tokens=state.tokens + max(0, ended.tokens),
        failures=failures,
        error=ended.error,
        sent_at=None,
        ended_at=now,
    )


def _finish(state: PromptWarmup, now: float, why: str) -> PromptStep:
    cancel = state.sent_at is not None
    ended_at = now if cancel else state.ended_at
    detail = f"{state.sent} of {state.count} prompts, {state.tokens} tokens; {why}"
    over = msgspec.structs.replace(state, sent_at=None, ended_at=ended_at, outcome=detail)
    return PromptStep(over, None, cancel, detail)
