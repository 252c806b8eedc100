"""What `moetunectl alerts` prints: pure functions of the sinks. What came from outside is stripped of control characters."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator

import click

from moetuned.cli.text_width import printable
from moetuned.schema.alert_view import AlertsAnswer, AlertSinkView, DeliveryView
from moetuned.schema.units import format_duration

NONE = "There is no alert sink: the config names none under alerts:. What happened is in: moetunectl events"


def render_list(answer: AlertsAnswer, width: int, colour: bool, now: float | None = None) -> str:
    """All sinks, ending in a newline. `now`: Unix time; None: the clock's."""
    if not answer.sinks:
        return f"{NONE}\n"
    wall = time.time() if now is None else now
    lines = [line for sink in answer.sinks for line in _sink(sink, width, colour, wall)]
    return "\n".join(lines) + "\n"


def test_line(view: AlertSinkView, tested: DeliveryView | None, name_width: int) -> str:
    """What became of a test. None: nothing yet."""
    if tested is None:
        word, text = "no answer", view.problem or "it took too long; see moetunectl alerts list and the daemon's log"
    else:
        took = f" ({format_duration(tested.duration_seconds)})" if tested.duration_seconds else ""
        word, text = "ok" if tested.ok else "failed", f"{tested.detail}{took}"
    return printable(f"{view.name.ljust(name_width)}  {word.ljust(6)}  {text}")


def _sink(sink: AlertSinkView, width: int, colour: bool, now: float) -> Iterator[str]:
    kind = "" if sink.name == sink.kind or sink.name.startswith(f"{sink.kind}-") else f" ({sink.kind})"
    head = printable(f"{sink.name}{kind}  {sink.target}")
    yield click.style(head, bold=True) if colour else head
    for text, fg in _facts(sink, now):
        for line in textwrap.wrap(printable(text), max(20, width - 2), break_long_words=False, break_on_hyphens=False):
            yield f"  {click.style(line, fg=fg) if colour and fg else line}"


def _facts(sink: AlertSinkView, now: float) -> Iterator[tuple[str, str | None]]:
    if sink.problem is not None:
        yield f"broken: {sink.problem}", "red"
    yield f"told: {_filters(sink)}", None
    last = sink.last
    if last is not None:
        ago = format_duration(max(0.0, now - last.wall_seconds))
        word, fg = ("delivered", "green") if last.ok else ("failed", "red")
        yield f"last: {last.event}, {word} {ago} ago: {last.detail}", fg
    elif sink.kind != "journal":  # what it takes is not counted
        yield "last: nothing was told yet", None
    if sink.waiting:
        yield f"waiting: {_waiting(sink)}", "yellow"
    counts = {
        "held until they may go": sink.held,
        "held back since the last": sink.held_back,
        "dropped": sink.dropped,
        "not delivered": sink.failed,
    }
    if any(counts.values()):
        yield f"alerts {', '.join(f'{what}: {count}' for what, count in counts.items() if count)}", "yellow"


def _filters(sink: AlertSinkView) -> str:
    parts = [", ".join(sink.on) + (" and their ends" if sink.ends else "") if sink.on else "all events"]
    if sink.backends:
        parts.append(f"only of {', '.join(sink.backends)}")
    if sink.at_most is not None:
        parts.append(f"at most {sink.at_most}")
    if sink.quiet_hours is not None:
        but = f" but for {', '.join(sink.loud)}" if sink.loud else ""
        parts.append(f"quiet {sink.quiet_hours}{but}")
    return "; ".join(parts)


def _waiting(sink: AlertSinkView) -> str:
    parts = [str(sink.waiting)]
    if sink.tries:
        parts.append(f"the first was tried {'once' if sink.tries == 1 else f'{sink.tries} times'}")
    if sink.sending:
        parts.append("it is being delivered")
    elif sink.next_try_seconds is not None:
        parts.append(f"the next try is in {format_duration(sink.next_try_seconds)}")
    return ", ".join(parts)
