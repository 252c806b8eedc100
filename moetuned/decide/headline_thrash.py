"""The headline of a thrash: what it costs, what most likely causes it, and what to do about that cause.

The cause is told from what the daemon found, in this order: who was seen to take memory; what a limit that was lowered took; what the
backend itself took; too little room for what every token reads; windows of a read-ahead that are much larger than what was missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from moetuned.decide.headline_words import (
    grew_text,
    grower,
    model_word,
    read_text,
    reader,
    relief_command,
    shell_word,
    tokens,
)
from moetuned.schema.event import Event, EventName
from moetuned.schema.headline import Headline, Severity, Situation
from moetuned.schema.snapshot import BackendView
from moetuned.schema.units import format_bytes, format_duration, format_ratio
from moetuned.schema.verdict import MemoryState, Phase, Reason

LOST_RATIO = 0.05
"""So much of the model must have left the page cache before somebody else is blamed for it."""
ROOM_SHARE = 0.8
"""What every token reads is too much for the memory there is when it takes more than this share of it."""
WIDE_RATIO = 2.0
"""A read from disk that is so many times an expert's slice fetches much that nobody needs."""
MUCH_SLOWER = 0.8
LITTLE_RATIO = 0.2
_TAKEN = frozenset({"cache_lost_ratio", "own_swap_in_bytes_per_second"})
_AGAIN = "it reads the same parts of its model from disk again and again"
_SWAPS = "parts of its memory are swapped out to disk and read back again and again"


def thrash_headline(view: BackendView, events: Sequence[Event], at_seconds: float) -> Headline:
    """`events`: the daemon's last ones, oldest first; `at_seconds`: monotonic seconds of the snapshot."""
    verdict = view.verdict
    since = verdict.paging_since
    for_long = "" if since is None or at_seconds - since < 1 else f" for {format_duration(at_seconds - since)}"
    cause, advice = _cause(view, _begin_reasons(view, events))
    text = f"thrashing{for_long}: {_cost(view)}{cause}."
    if verdict.memory is MemoryState.NEAR_LIMIT and _little_left(view):
        text += f" Memory is nearly full, too ({format_bytes(view.memory.headroom_bytes)} left)."
    return Headline(Severity.CRITICAL, Situation.THRASHING, text, advice, view.name)


def _little_left(view: BackendView) -> bool:
    """Whether it may be said without the pace at which it is used up."""
    headroom, limit = view.memory.headroom_bytes, view.memory.limit_bytes
    return headroom is not None and limit is not None and headroom < LITTLE_RATIO * limit


def _begin_reasons(view: BackendView, events: Sequence[Event]) -> tuple[Reason, ...]:
    """Those of the event that told this thrash."""
    for event in reversed(events):
        if event.backend == view.name and event.name is EventName.THRASH_END:
            return ()
        if event.backend == view.name and event.name is EventName.THRASH_BEGIN:
            return event.reasons
    return ()


def _cost(view: BackendView) -> str:
    speed, best = view.signals.get("tokens_per_second"), view.best_tokens_per_second
    if speed and best is not None and speed < MUCH_SLOWER * best:
        cost = f"{tokens(speed)} instead of {best:.1f}"
    elif speed:
        cost = f"only {tokens(speed)}"
    else:
        usual = "" if best is None else f" (it has done {tokens(best)})"
        doing = "gets on with its prompt" if view.verdict.phase is Phase.PREFILL else "answers"
        cost = f"it hardly {doing}{usual}"
    swaps = any(reason.signal == "own_swap_in_bytes_per_second" for reason in view.verdict.reasons)
    return f"{cost}, because {_SWAPS if swaps else _AGAIN}"


def _cause(view: BackendView, begun: Sequence[Reason]) -> tuple[str, str]:
    """Why, as what follows upon the cost, and what to do."""
    now = tuple(reason for reason in view.verdict.reasons if reason.axis == "paging")
    if _was_taken(view, (*now, *begun)):
        return _taken(view, begun)
    if (little := _too_little(view)) is not None:
        return little
    if (wide := _too_wide(view, (*now, *begun))) is not None:
        return wide
    return (
        "; less of the model is in memory than when it ran well",
        f"Close what you do not need, or see what frees memory: {relief_command(view)}",
    )


def _was_taken(view: BackendView, reasons: Sequence[Reason]) -> bool:
    lost = view.signals.get("cache_lost_ratio")
    return any(reason.signal in _TAKEN for reason in reasons) or (lost is not None and lost >= LOST_RATIO)


def _taken(view: BackendView, begun: Sequence[Reason]) -> tuple[str, str]:
    more = f"or see what else frees memory: {relief_command(view)}"
    lowered = _lowered(view)
    if (named := _named(view, begun)) is not None:
        return f"; {named} and took the memory they were in", f"Close it, {more}"
    if lowered is not None:
        return f"; {lowered}, and they no longer fit", f"Raise the limit again, {more}"
    match view.memory.growth_kind:
        case "neighbour":
            return (
                "; another program under the same memory limit takes the memory they were in",
                f"Close it (top shows which one grows), {more}",
            )
        case "outside":
            return (
                "; another program takes the memory they were in",
                f"Close it (top shows which one grows), {more}",
            )
        case "prompt_cache" | "leak" | "start":
            return (
                "; its own memory grew and took the room that they were in",
                f"See how to shrink it: {relief_command(view)}",
            )
    if (who := reader(view.neighbours)) is not None:
        return f"; {read_text(who)} and pushed them out of memory", f"Stop it, or let it wait, {more}"
    lost = view.signals.get("cache_lost_ratio")
    share = "" if lost is None or lost < LOST_RATIO else f" ({format_ratio(min(1.0, lost))} of the model)"
    return f"; something took the memory they were in{share}", f"Close what you do not need, {more}"


def _named(view: BackendView, begun: Sequence[Reason]) -> str | None:
    """Who grew, as it is known now, else as the event told it."""
    if (now := grower(view.neighbours)) is not None:
        return grew_text(now)
    for reason in begun:
        if reason.signal == "neighbour_grew_bytes":
            return reason.text
    return None


def _lowered(view: BackendView) -> str | None:
    """That a limit was lowered just now, in the detector's words: its only reason of the headroom that has no limit."""
    for reason in view.verdict.reasons:
        if (
            reason.axis == "memory"
            and reason.signal == "headroom_bytes"
            and reason.limit is None
            and reason.value is not None
        ):
            return reason.text
    return None


def _too_little(view: BackendView) -> tuple[str, str] | None:
    """Whether there is hardly room for what a single token reads."""
    layout, memory = view.layout, view.memory
    if layout is None or memory.headroom_bytes is None or memory.limit_bytes is None:
        return None
    needed = layout.other_bytes + layout.active_expert_bytes
    if needed <= ROOM_SHARE * memory.headroom_bytes:
        return None
    room = max(0, memory.headroom_bytes)
    whose = "its memory limit" if memory.scope == "cgroup" else "memory"
    what = (
        f"; it has too little memory: each token needs {format_bytes(needed)} of the model, and {whose} "
        f"({format_bytes(memory.limit_bytes)}) leaves room for {format_bytes(room)}"
    )
    smaller = "use a smaller model or a shorter context; what fits says"
    return what, f"Give it more memory, or {smaller}: moetunectl estimate {model_word(view)}"


def _too_wide(view: BackendView, reasons: Sequence[Reason]) -> tuple[str, str] | None:
    """Whether misses fetch far more than was missing."""
    layout, window = view.layout, view.signals.get("bytes_per_major_fault")
    amplified = any(
        reason.signal in ("read_amplification", "bytes_per_token", "bytes_per_major_fault") for reason in reasons
    )
    if layout is None or not layout.expert_slice_bytes or not amplified:
        return None
    needs = f"where {format_bytes(layout.expert_slice_bytes)} would do"
    if window is not None and window >= WIDE_RATIO * layout.expert_slice_bytes:
        what = f"; each time it fetches {format_bytes(window)} {needs}: the read-ahead of its disk (how much is read at once) is too large"
    else:
        what = (
            "; it fetches far more than it needs: the read-ahead of its disk (how much is read at once) is too large, "
            "or too little of the model fits in memory"
        )
    advice = (
        f"Find the right read-ahead: sudo moetunectl tune readahead {model_word(view)} "
        f"(it says how to keep it; restart {shell_word(view.name)} afterwards)"
    )
    return what, advice
