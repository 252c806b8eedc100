"""A restart by hand as it is told: what it will cost, how far it is, and how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from moetuned.cli.progress_line import OneLine
from moetuned.cli.text_width import printable
from moetuned.schema.snapshot import BackendView, Snapshot
from moetuned.schema.supervision import BackendAnswer, Restart
from moetuned.schema.units import format_duration

_ASK_SECONDS = 0.5
_END_SECONDS = 60.0
"""For what is no loading: to end, to be seen."""
_PATIENCE = 3.0
"""A load may take so many times as long as is expected."""
_SLOWEST_BYTES_PER_SECOND = 50e6
"""Of a disk that nothing is known of."""
_UNKNOWN_SECONDS = 1800.0


class Outcome(msgspec.Struct, frozen=True):
    """How it ended, in one sentence."""

    well: bool
    sentence: str


class Daemon(Protocol):
    """What is needed of `api.client.Client`; raises DaemonError."""

    def status(self) -> Snapshot:
        """The last Snapshot."""
        ...


def forecast(answer: BackendAnswer) -> Iterator[str]:
    """What the restart will be, before it is done."""
    before, after = answer.context_before, answer.context_after
    context = ""
    if after is not None:
        context = f" with a context of {after} tokens" + (f" (now {before})" if before not in (None, after) else "")
    if answer.expected_seconds is None:
        how_long = f"how long that takes is not known: {answer.expected_source}"
    else:
        how_long = f"that takes about {_rounded(answer.expected_seconds)} ({answer.expected_source})"
    if not answer.runs:
        yield f"{answer.backend} does not run now: it is started{context}; {how_long}."
        return
    yield f"{answer.backend} is ended and started again{context}; {how_long}."
    requests = "request" if answer.busy == 1 else "requests"
    if answer.busy and answer.wait_seconds:
        yield (
            f"{answer.busy} {requests} of now: waited for, {format_duration(answer.wait_seconds)} at most, then cut off; "
            "so are those that come meanwhile."
        )
    elif answer.busy:
        yield f"{answer.busy} {requests} of now: cut off."
    elif answer.busy is None:
        yield "Whether it is answering requests is not known; those that it is answering are cut off."


def deadline_seconds(answer: BackendAnswer, model_bytes: int | None) -> float:
    """How long to wait for it to be healthy: by what is expected, else by the size of its model."""
    expected = answer.expected_seconds
    if expected is not None:
        load = _PATIENCE * expected
    else:
        load = _UNKNOWN_SECONDS if model_bytes is None else model_bytes / _SLOWEST_BYTES_PER_SECOND
    return load + answer.wait_seconds + _END_SECONDS


def follow(
    daemon: Daemon,
    answer: BackendAnswer,
    deadline: float,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    line: OneLine | None = None,
) -> Outcome:
    """Wait until the restart is over, at most `deadline` seconds, with a line on a terminal. Raises DaemonError."""
    line = line or OneLine(sys.stderr)
    began = clock()
    try:
        while True:
            view = next((one for one in daemon.status().backends if one.name == answer.backend), None)
            outcome = _outcome(view, answer)
            if outcome is not None:
                return outcome
            assert view is not None
            took = clock() - began
            if took > deadline:
                return Outcome(
                    well=False,
                    sentence=f"{answer.backend} is not healthy after {_rounded(took)}: it {printable(view.sentence)}; it goes on, "
                    f"moetunectl backend show {answer.backend} says how far it is",
                )
            line.draw(
                f"{answer.backend} {printable(view.supervision.waits or view.sentence)}, {_rounded(took)}{_of(answer)}"
            )
            pause(_ASK_SECONDS)
    finally:
        line.clear()


def _outcome(view: BackendView | None, answer: BackendAnswer) -> Outcome | None:
    """None while it goes on."""
    name = answer.backend
    if view is None:
        return Outcome(well=False, sentence=f"{name} is no longer in the config")
    seen = view.supervision
    ours = [one for one in seen.restarts if one.wall_seconds >= answer.asked_wall_seconds]
    if seen.waits is not None or not ours:
        return None if seen.waits is not None or seen.stage == "stopping" else _lost(view)
    last = ours[-1]
    if last.took_seconds is not None:
        return Outcome(well=True, sentence=_done(view, last, answer))
    if last.failed is not None:
        return Outcome(well=False, sentence=f"{name} could not be restarted: {last.failed}")
    if seen.stage in ("waiting", "broken"):
        log = "" if seen.log is None else f"; its log: {seen.log}"
        return Outcome(well=False, sentence=f"{name} {printable(view.sentence)}{log}")
    if seen.stage == "stopped":
        return Outcome(well=False, sentence=f"{name} was stopped")
    return None


def _lost(view: BackendView) -> Outcome:
    return Outcome(well=False, sentence=f"{view.name} was not restarted: {printable(view.sentence)}")


def _done(view: BackendView, last: Restart, answer: BackendAnswer) -> str:
    assert last.took_seconds is not None
    context = "" if last.context_after is None else f" with a context of {last.context_after} tokens"
    text = f"{view.name} is healthy again{context}, after {_rounded(last.took_seconds)}"
    if answer.context_after is not None and last.context_after != answer.context_after:
        text += f"; {answer.context_after} were asked for"
    return text if view.before_start is None else f"{text}; {view.before_start}"


def _of(answer: BackendAnswer) -> str:
    return "" if answer.expected_seconds is None else f" of about {_rounded(answer.expected_seconds)}"


def _rounded(seconds: float) -> str:
    return format_duration(max(1.0, round(seconds)))
