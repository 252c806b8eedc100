"""How far a prompt is read and how long that goes on: from the tokens the slots tell and from the bytes the process reads.

llama-server moves `n_prompt_tokens_processed` once a batch (-b), and reads about one pass of all the experts that its tokens touch for
every micro-batch (-ub) of it (measured: a model of 2.6 times its memory, 1020 tokens: 12.4 GB with -ub 128, 1.7 GB with -ub 1024). So
tokens are exact and rare, bytes are steady and forecast: a batch that has ended says what a token costs, until then the layout does.

`n_prompt_tokens` is the whole prompt in older builds. Newer ones count there what was put into the context so far, the batch that is
worked on included (measured with 512 of 3000 tokens a batch: 512, 1024, ...); the end is in sight once a batch is not full. Until then
a prompt is at least so long, and at most as the slot's context.
"""

from __future__ import annotations

import msgspec

from moetuned.decide.detector_hung import STOPPED_STATES
from moetuned.decide.facts import BackendFacts
from moetuned.decide.prefill_text import SMALL_BYTES_PER_SECOND
from moetuned.schema.sample import BackendSample, Slot
from moetuned.schema.signals import Signals
from moetuned.schema.snapshot import PrefillView
from moetuned.schema.verdict import Phase

LIKELY_REREAD_RATIO, MOST_REREAD_RATIO = 0.15, 0.6
"""A pass over the experts in order pushes out what the next one needs (LRU): of what is resident, so much is read again, too.

Measured a micro-batch, as a share of all experts: 0.46 where 0.40 were missing, 0.66 and 0.75 where 0.65 were, 0.85 where 0.62 were.
"""
LEARNED_FACTOR = 1.25
"""So far apart were two prompts in a row of one backend."""
MIN_SECONDS = 3.0
"""No rate is believed before."""


class PrefillState(msgspec.Struct, frozen=True):
    """What is remembered of the prompts that are read now. `pass_bytes`: what a micro-batch read in the last one that ended.

    `tasks` empty: none is read. Tokens are those of all slots that read one, without what the prompt cache had; `moved_*` of the last
    time they moved, `began_*` of the first look. `grew`: `taken` grew in one task, so it is not the whole prompt.
    """

    tasks: tuple[tuple[int, int | None], ...] = ()
    began_at: float = 0.0
    began_read: int | None = None
    began_tokens: int = 0
    moved_at: float = 0.0
    moved_read: int | None = None
    tokens: int | None = None
    taken: int | None = None
    cached: int = 0
    context: int | None = None
    batch: int | None = None
    grew: bool = False
    at: float = 0.0
    read: int | None = None
    missing_share: float | None = None
    pass_bytes: float | None = None


def step_prefill(
    state: PrefillState, sample: BackendSample, signals: Signals, phase: Phase, facts: BackendFacts
) -> PrefillState:
    """What is known of the prompt at this tick; another process must be given a new state."""
    read = None if sample.process is None else sample.process.read_bytes
    if phase is not Phase.PREFILL:
        return PrefillState(pass_bytes=_learned(_ended(state, sample, read), facts)) if state.tasks else state
    if state.tasks and sample.process is not None and sample.process.state in STOPPED_STATES:
        passed = signals.at_seconds - state.at  # time in which it could not read
        state = msgspec.structs.replace(state, began_at=state.began_at + passed, moved_at=state.moved_at + passed)
    slots = () if sample.http is None or sample.http.slots is None else _reading(sample.http.slots)
    if not slots:  # it does not answer between batches
        return msgspec.structs.replace(state, at=signals.at_seconds, read=read) if state.tasks else state
    tokens, taken = _sum(slots, "prompt_tokens_processed"), _taken(slots)
    tasks = tuple((slot.slot_id, slot.task_id) for slot in slots)
    if tasks != state.tasks:
        return PrefillState(
            tasks=tasks,
            began_at=signals.at_seconds,
            began_read=read,
            began_tokens=tokens or 0,
            moved_at=signals.at_seconds,
            moved_read=read,
            tokens=tokens,
            taken=taken,
            cached=_cached(slots),
            context=_room(slots),
            batch=None,
            at=signals.at_seconds,
            read=read,
            missing_share=_missing_share(signals),
            pass_bytes=_learned(state, facts),
        )
    moved = tokens is not None and state.tokens is not None and tokens > state.tokens
    changes: dict[str, object] = {"at": signals.at_seconds, "read": read}
    if moved and tokens is not None and state.tokens is not None:
        # Several batches may have ended between two looks, so the least step is the best guess at one.
        step = tokens - state.tokens
        changes |= {"batch": step if state.batch is None else min(step, state.batch)}
        changes |= {"moved_at": signals.at_seconds, "moved_read": read}
    if tokens is not None:
        changes["tokens"] = tokens
    if taken is not None:
        changes |= {"taken": taken, "grew": state.grew or (state.taken is not None and taken > state.taken)}
    return msgspec.structs.replace(state, **changes)


def prefill_view(state: PrefillState, facts: BackendFacts) -> PrefillView | None:
    """Progress for people and programs; None when no prompt is read."""
    if not state.tasks:
        return None
    least, most = _ends(state, facts)
    done = None if state.read is None or state.began_read is None else max(0, state.read - state.began_read)
    view = PrefillView(
        tokens_done=state.tokens,
        tokens_total=least if most is not None and least == most else None,
        tokens_at_least=least,
        tokens_at_most=most,
        read_bytes=done,
        seconds=state.at - state.began_at,
    )
    if least is None or state.tokens is None:
        return msgspec.structs.replace(view, unknown="the backend does not tell how many tokens the prompt has")
    return _forecast(state, facts, view, least, most, done)


class _Cost(msgspec.Struct, frozen=True):
    """Bytes a pass costs, or a token where a batch has shown that (`size` None), and seconds a token then."""

    least: float
    likely: float
    most: float
    size: int | None = None
    seconds: float | None = None


def _forecast(
    state: PrefillState, facts: BackendFacts, view: PrefillView, least: int, most: int | None, done: int | None
) -> PrefillView:
    cost = _cost(state, facts)
    if cost is None:
        return msgspec.structs.replace(view, unknown="what a pass of its experts reads is not known yet")
    tokens, since = state.tokens or 0, state.at - state.moved_at
    in_batch = 0 if state.read is None or state.moved_read is None else max(0, state.read - state.moved_read)
    if done is None and cost.seconds is None:
        return msgspec.structs.replace(view, unknown="what it reads is unknown")
    rate = _rate(state, done)
    spans: list[float] = []
    totals: list[float] = []
    for total, each in ((least, cost.least), (least, cost.likely), (most or least, cost.most)):
        left = max(0, total - tokens)
        needed = each * (left if cost.size is None else _passes(left, cost.size, facts))
        totals.append((done or 0) + max(0.0, needed - in_batch))
        spans.append(_seconds_left(left, needed, in_batch, since, rate, cost.seconds))
    if all(span < 0 for span in spans):
        return msgspec.structs.replace(view, unknown=_why_unknown(rate))
    known = [max(0.0, span) for span in spans]
    return msgspec.structs.replace(
        view,
        total_bytes=None if done is None else round(totals[1]),
        total_least_bytes=None if done is None else round(totals[0]),
        total_most_bytes=None if done is None or most is None else round(totals[2]),
        eta_seconds=known[1] if most is not None and most == least else None,
        eta_least_seconds=known[0],
        eta_most_seconds=None if most is None else known[2],
    )


def _why_unknown(rate: float | None) -> str:
    return (
        "it has only begun"
        if rate is None
        else "it computes and hardly reads, so bytes say nothing before its first batch ends"
    )


def _seconds_left(
    left: int, needed: float, in_batch: float, since: float, rate: float | None, seconds: float | None
) -> float:
    """Seconds for `left` tokens, -1 when not known. Within a batch its bytes tell how much of it is done, else its time."""
    if seconds is not None:
        if needed > SMALL_BYTES_PER_SECOND * seconds * left:
            return max(0.0, 1.0 - in_batch / needed) * left * seconds
        return max(0.0, left * seconds - since)
    if rate is None or rate < SMALL_BYTES_PER_SECOND:
        return -1.0
    return max(0.0, needed - in_batch) / rate


def _passes(tokens: int, size: int, facts: BackendFacts) -> float:
    """Passes over the experts that so many tokens take; a micro-batch that is not full touches fewer of them."""
    full, rest = divmod(tokens, size)
    if not rest:
        return float(full)
    part, whole = touched_bytes(facts, rest), touched_bytes(facts, size)
    return full + (1.0 if part is None or not whole else part / whole)


def _rate(state: PrefillState, done: int | None) -> float | None:
    seconds = state.at - state.began_at
    return None if done is None or seconds < MIN_SECONDS else done / seconds


def _cost(state: PrefillState, facts: BackendFacts) -> _Cost | None:
    """What a token costs: as measured in this prompt, as learned from the one before, as the layout lets expect."""
    measured = (state.tokens or 0) - state.began_tokens
    if measured > 0 and state.moved_at > state.began_at:
        seconds = (state.moved_at - state.began_at) / measured
        read = 0 if state.moved_read is None or state.began_read is None else state.moved_read - state.began_read
        each = max(0.0, read / measured)
        return _Cost(each, each, each, seconds=seconds)
    size = facts.micro_batch_tokens
    if not size:
        return None
    if state.pass_bytes is not None:
        learned = state.pass_bytes
        return _Cost(learned / LEARNED_FACTOR, learned, learned * LEARNED_FACTOR, size)
    whole = touched_bytes(facts, size)
    if whole is None:
        return None
    missing = state.missing_share
    if missing is None:
        return _Cost(0.0, whole / 2, whole, size)
    least = missing * whole
    again = whole - least if least else 0.0
    likely, most = least + LIKELY_REREAD_RATIO * again, least + MOST_REREAD_RATIO * again
    return _Cost(least, likely, most, size)


def touched_bytes(facts: BackendFacts, tokens: int) -> float | None:
    """Bytes of experts that a micro-batch of so many tokens touches, where each is as likely as the others; None: no layout."""
    layout = facts.layout
    if layout is None or not layout.expert_bytes or not layout.experts:
        return None
    used = min(1.0, layout.experts_used / layout.experts)
    return layout.expert_bytes * (1.0 - (1.0 - used) ** min(tokens, 1 << 16))


def _ends(state: PrefillState, facts: BackendFacts) -> tuple[int | None, int | None]:
    """The least and the most tokens that are to be processed, without what the prompt cache had. Equal: known."""
    if state.taken is None or state.tokens is None:
        return None, None
    working = state.taken - state.tokens
    batch = facts.batch_tokens if state.batch is None else max(state.batch, 1)
    if len(state.tasks) > 1:  # they share batches, so what is full is not to be told
        return state.taken, state.taken if _is_whole(state, working, batch) else state.context
    if _is_whole(state, working, batch) or (batch is not None and 0 < working < batch):
        return state.taken, state.taken
    return state.taken, state.context


def _is_whole(state: PrefillState, working: int, batch: int | None) -> bool:
    """Whether `n_prompt_tokens` is the whole prompt: more of it is left than a batch, or it stood still while batches ended."""
    if state.grew:
        return False
    return (batch is not None and working > batch) or (state.batch is not None and working > 0)


def _learned(state: PrefillState, facts: BackendFacts) -> float | None:
    """Bytes of a micro-batch of the prompt that was read, once enough of it was seen."""
    size = facts.micro_batch_tokens
    seen = (state.tokens or 0) - state.began_tokens
    if not state.tasks or not size or seen < 2 * size or state.moved_read is None or state.began_read is None:
        return state.pass_bytes
    return max(0, state.moved_read - state.began_read) / seen * size


def _ended(state: PrefillState, sample: BackendSample, read: int | None) -> PrefillState:
    """With all of its tokens, where it was answered since: a prompt of one batch shows them only then.

    A slot that is idle again forgets what it processed; more tokens in its context than the prompt had say that it was answered.
    """
    slots = () if sample.http is None or sample.http.slots is None else sample.http.slots
    own = tuple(slot for slot in slots if (slot.slot_id, slot.task_id) in state.tasks)
    if len(own) != len(state.tasks) or read is None:
        return state
    tokens = _sum(own, "prompt_tokens_processed") if all(slot.decoded_tokens for slot in own) else None
    whole = _sum(own, "prompt_tokens")
    if tokens is None and whole is not None and state.taken is not None and whole > state.taken + state.cached:
        tokens = state.taken
    return state if tokens is None else msgspec.structs.replace(state, tokens=tokens, moved_read=read)


def _missing_share(signals: Signals) -> float | None:
    resident = signals.get("expert_resident_ratio")
    return None if resident is None else max(0.0, 1.0 - resident)


def _reading(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    return tuple(slot for slot in slots if slot.processing and not slot.decoded_tokens)


def _sum(slots: tuple[Slot, ...], field: str) -> int | None:
    values = [getattr(slot, field) for slot in slots]
    return None if any(value is None for value in values) else sum(values)


def _taken(slots: tuple[Slot, ...]) -> int | None:
    whole = _sum(slots, "prompt_tokens")
    return None if whole is None else whole - _cached(slots)


def _cached(slots: tuple[Slot, ...]) -> int:
    return sum(slot.prompt_tokens_cached or 0 for slot in slots)


def _room(slots: tuple[Slot, ...]) -> int | None:
    whole = _sum(slots, "context_length")
    return None if whole is None else whole - _cached(slots)
