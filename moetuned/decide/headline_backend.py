"""The headline of one backend: what is wrong with it first, then what it does. See `decide.headline`."""

from __future__ import annotations

from collections.abc import Sequence

from moetuned.decide.headline_thrash import LITTLE_RATIO, thrash_headline
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
from moetuned.decide.prefill_text import prefill_progress
from moetuned.schema.event import Event, EventName, is_kind_of
from moetuned.schema.headline import Headline, Severity, Situation
from moetuned.schema.snapshot import BackendView
from moetuned.schema.units import format_bytes, format_duration, format_rate, format_ratio
from moetuned.schema.verdict import MemoryState, Paging, Phase

WANTED_STATES = frozenset({"starting", "restarting", "draining", "ending"})
"""States of a backend that does not answer, or soon will not, because somebody or moetuned wants that."""
STARVED = "cpu_ratio"
"""The signal of `decide.paging_starved`; what tells it is not imported by who only shows it."""
_NOTHING = "Nothing to do."
_GROWS = {
    "prompt_cache": "its prompt cache grows",
    "leak": "it leaks memory",
    "loading": "it copies its weights into memory of its own while it loads",
    "neighbour": "another program under the same limit grows",
    "outside": "another program grows",
}


def backend_headline(view: BackendView, events: Sequence[Event], at_seconds: float, mode: str) -> Headline:
    """`events`: the daemon's last ones, oldest first; `at_seconds`: monotonic seconds of the snapshot; `mode`: of relief."""
    verdict = view.verdict
    signals = {reason.signal for reason in verdict.reasons if reason.axis == "phase"}
    if view.state in WANTED_STATES:
        return _line(
            view, Severity.WARNING, Situation.TRANSITION, _sentence(view), "It answers again when that is done; wait."
        )
    if view.state == "paused" or "paused" in signals:
        return _line(view, Severity.WARNING, Situation.PAUSED, _sentence(view), _resume(view))
    if verdict.phase is Phase.ABSENT and view.state == "unknown" and view.pid is not None:
        text = "it was found running just now; what it does is not known yet."
        return _line(view, Severity.UNKNOWN, Situation.UNSEEN, text, "Look again in a moment.")
    if verdict.phase is Phase.ABSENT or view.state in ("stopped", "waiting", "broken"):
        return _down(view, events)
    if "hung" in signals:
        return _line(view, Severity.CRITICAL, Situation.HUNG, _sentence(view), _see_log(view))
    if verdict.memory is MemoryState.CRITICAL:
        return _memory(view, mode)
    if verdict.paging is Paging.THRASHING:
        return thrash_headline(view, events, at_seconds)
    if verdict.memory is MemoryState.NEAR_LIMIT:
        return _memory(view, mode)
    if any(reason.axis == "paging" and reason.signal == STARVED for reason in verdict.reasons):
        return _starved(view)
    if verdict.paging is Paging.COLD and _was_evicted(view):
        return _evicted(view, events)
    return _working(view, at_seconds)


def _line(view: BackendView, severity: Severity, situation: Situation, text: str, advice: str = "") -> Headline:
    return Headline(severity, situation, text, advice, view.name)


def _said(view: BackendView) -> str:
    """The daemon's sentence. What ends with a command gets no full stop, which would be taken for a part of it."""
    return view.sentence.removesuffix(".")


def _sentence(view: BackendView) -> str:
    said = _said(view)
    return said if said.endswith(f" {view.name}") else f"{said}."


def _resume(view: BackendView) -> str:
    if "moetunectl backend resume" in view.sentence:
        return ""
    if view.supervised:
        return f"To let it go on: moetunectl backend resume {shell_word(view.name)}"
    return f"To let it go on: kill -CONT {'PID' if view.pid is None else view.pid}"


def _see_log(view: BackendView) -> str:
    if view.supervised:
        return f"See {_log(view)}, then restart it: moetunectl backend restart {shell_word(view.name)} --now"
    return f"See {_log(view)}, then end it and start it again."


def _down(view: BackendView, events: Sequence[Event]) -> Headline:
    killed = _last_down(view, events) is EventName.BACKEND_OOM_KILLED
    said, name = _said(view), shell_word(view.name)
    if killed:
        again = "" if view.state != "waiting" else f" Now it {said}."
        text = f"down: the kernel ended it, because its memory was full (out of memory).{again}"
        how = "Give it" if view.supervised else "Start it again with"
        what = f"{how} more memory, a shorter context or a smaller model; what fits says: moetunectl estimate {model_word(view)}"
    elif not view.supervised:
        text = "down: no process of it runs, so it answers nobody."
        what = "Start it; its log says why it ended. moetuned finds it again by itself."
    else:
        text = f"down: it {said}." if said.startswith("is ") else f"down: {said}."
        act = (
            ""
            if view.state == "waiting" or "moetunectl" in said
            else f", then start it: moetunectl backend restart {name}"
        )
        what = f"{'If it does not come up, see' if view.state == 'waiting' else 'See'} {_log(view)}{act}"
    return _line(view, Severity.CRITICAL, Situation.DOWN, text, what)


def _log(view: BackendView) -> str:
    return "its log" if view.supervision.log is None else view.supervision.log


def _last_down(view: BackendView, events: Sequence[Event]) -> EventName | None:
    """Why it went, in the event of its last end; None where it came up since."""
    for event in reversed(events):
        if event.backend != view.name:
            continue
        if event.name in (EventName.BACKEND_RECOVERED, EventName.BACKEND_RESTARTED):
            return None
        if is_kind_of(event.name, EventName.BACKEND_DOWN):
            return event.name
    return None


def _memory(view: BackendView, mode: str) -> Headline:
    memory, critical = view.memory, view.verdict.memory is MemoryState.CRITICAL
    left = max(0, memory.headroom_bytes or 0)
    seconds, scope = memory.seconds_to_limit, "its limit of " if memory.scope == "cgroup" else ""
    soon = "" if seconds is None else f", full in about {format_duration(seconds)} at this pace"
    much = not critical and memory.limit_bytes is not None and left > LITTLE_RATIO * memory.limit_bytes
    state = "full" if critical else "filling up fast" if much else "nearly full"
    text = f"its memory is {state}: {format_bytes(left)} of {scope}{format_bytes(memory.limit_bytes)} left{soon}"
    who = grower(view.neighbours)
    grows = grew_text(who) if who is not None else _GROWS.get(memory.growth_kind or "")
    text += "" if grows is None else f"; {grows}"
    text += ". When it is full, the kernel ends a program, most likely this one."
    advice = _make_room(view, mode, named=who is not None)
    severity, situation = (
        (Severity.CRITICAL, Situation.AT_LIMIT) if critical else (Severity.WARNING, Situation.NEAR_LIMIT)
    )
    return _line(view, severity, situation, text, advice)


def _make_room(view: BackendView, mode: str, *, named: bool) -> str:
    """What to do about memory that runs out, by what takes it. `named`: the text says who grew."""
    kind, more = view.memory.growth_kind, f"or see what else frees memory: {relief_command(view)}"
    if kind == "loading":
        return "Start it with --no-repack (then it needs no copies), or give it more memory."
    if view.supervised and mode == "act" and not view.would_do:
        return f"moetuned makes room by itself where it can; what it would do: {relief_command(view)}"
    if named or kind in ("neighbour", "outside"):
        return f"Close {'it' if named else 'that program'}, {more}"
    if kind == "prompt_cache":
        return f"Start it with a smaller prompt cache (--cache-ram), {more}"
    if kind == "leak" and view.supervised:
        return f"Restart it before that: moetunectl backend restart {shell_word(view.name)}"
    return f"Close what you do not need, {more}"


def _starved(view: BackendView) -> Headline:
    speed, best = view.signals.get("tokens_per_second"), view.best_tokens_per_second
    instead = "" if best is None else f" instead of {best:.1f}"
    text = f"slow: {'few tokens' if speed is None else tokens(speed)}{instead}, because other programs keep the processor busy; memory is not the reason."
    advice = "See which (top), and end them, or give them a lower priority (renice) or fewer cores."
    return _line(view, Severity.WARNING, Situation.STARVED, text, advice)


def _was_evicted(view: BackendView) -> bool:
    return any(reason.axis == "paging" and reason.signal == "resident_ratio" for reason in view.verdict.reasons)


def _evicted(view: BackendView, events: Sequence[Event]) -> Headline:
    lost = next(
        (one.value for one in view.verdict.reasons if one.axis == "paging" and one.signal == "resident_ratio"), None
    )
    share = "its model" if lost is None else f"{format_ratio(lost)} of its model"
    text = f"idle, and {share} was pushed out of memory meanwhile; its next answer starts slowly, since that is read from disk again"
    if (who := _evictor(view, events)) is not None:
        text += f". {who}"
    return _line(
        view, Severity.WARNING, Situation.EVICTED, f"{text}.", f"Warm it now: moetunectl warm {model_word(view)}"
    )


def _evictor(view: BackendView, events: Sequence[Event]) -> str | None:
    """Who was seen to do it, a clause; None: nobody was."""
    if (who := grower(view.neighbours)) is not None:
        return grew_text(who)
    if (who := reader(view.neighbours)) is not None:
        return read_text(who)
    for event in reversed(events):
        if event.backend == view.name and event.name is EventName.CACHE_EVICTED:
            return next((reason.text for reason in event.reasons if reason.axis == "neighbours"), None)
    return None


def _working(view: BackendView, at_seconds: float) -> Headline:
    """Nothing is wrong, as far as can be told."""
    verdict = view.verdict
    speed = view.signals.get("tokens_per_second")
    at = "" if not speed else f" at {tokens(speed)}"
    progress = "" if view.prefill is None or verdict.phase is not Phase.PREFILL else prefill_progress(view.prefill)
    match verdict.phase:
        case Phase.LOADING:
            return _loading(view)
        case Phase.UNKNOWN:
            return _unseen(view)
        case Phase.PREFILL if progress:
            return _line(
                view, Severity.OK, Situation.READING_PROMPT, f"reading a prompt: {progress}.", "Nothing to do but wait."
            )
    doing = {Phase.IDLE: "idle", Phase.PREFILL: "reading a prompt"}.get(verdict.phase, f"answering{at}")
    resident = _resident(view, at_seconds)
    match verdict.paging:
        case Paging.STREAMING:
            text = (
                f"all is well: {doing}. Its model is larger than its memory, so it has to read parts of it (experts) from disk all the "
                f"time{_rate(view)}; that is as fast as can be expected."
            )
            faster = "" if verdict.phase is Phase.IDLE else " Only more memory or a smaller model makes it faster."
            return _line(view, Severity.OK, Situation.STREAMING, text, f"{_NOTHING}{faster}")
        case Paging.STEADY:
            text = f"all is well: {doing}, and what it uses of its model is in memory."
            return _line(view, Severity.OK, Situation.WELL, text, _NOTHING)
        case Paging.COLD:
            text = f"{doing}, and its model is cold{resident}: the first answers are slow while they read it from disk. That passes by itself."
            return _line(
                view, Severity.OK, Situation.COLD, text, f"To read it in now: moetunectl warm {model_word(view)}"
            )
        case Paging.WARMING:
            text = f"{doing}, and warming up{resident}: it reads its model into memory{_rate(view)} and gets faster meanwhile."
            return _line(
                view, Severity.OK, Situation.WARMING, text, "Nothing to do but wait; it takes a request or two."
            )
    text = f"{doing}{resident}. Nothing is known to be wrong, but it is too early to tell whether it runs well."
    return _line(view, Severity.OK, Situation.UNTOLD, text, "Look again after its next request.")


def _unseen(view: BackendView) -> Headline:
    why = next((reason.text for reason in view.verdict.reasons if reason.axis == "phase"), None)
    told = "" if why is None else f" ({why})"
    text = f"it runs, but does not say what it does{told}, so nobody knows whether all is well."
    if view.url is None:
        advice = "Write its address (url:) into the configuration of moetuned: /etc/moetuned/moetuned.yaml"
    else:
        advice = f"See whether it answers: curl {shell_word(view.url)}/health"
    return _line(view, Severity.UNKNOWN, Situation.UNSEEN, text, advice)


def _loading(view: BackendView) -> Headline:
    text = f"loading its model{_rate(view)}; it reads the whole file once and answers after that."
    return _line(view, Severity.WARNING, Situation.LOADING, text, "Nothing to do but wait.")


def _is_outdated(view: BackendView, at_seconds: float) -> bool:
    """Whether residency was looked at before it did what it does now, which may be loading it all."""
    age, since = view.residency.age_seconds, view.verdict.phase_since
    return view.verdict.paging is Paging.COLD and age is not None and since is not None and at_seconds - age < since


def _resident(view: BackendView, at_seconds: float) -> str:
    resident = view.residency.resident_bytes
    if not view.model_bytes or resident is None or _is_outdated(view, at_seconds):
        return ""
    return f" ({format_ratio(min(1.0, resident / view.model_bytes))} of it is in memory)"


def _rate(view: BackendView) -> str:
    read = view.signals.get("process_read_bytes_per_second")
    return "" if read is None or read < 1e6 else f" ({format_rate(read)})"
