"""The picture of `moetunectl top` as a pure function of what is known and of what a person chose. It fits any size.

Everything that came from outside (names, messages) is stripped of control characters.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import msgspec

from moetuned.cli.columns import cut
from moetuned.cli.status_view import COLOURS
from moetuned.cli.styled_line import Line, plain
from moetuned.cli.text_width import columns_of
from moetuned.cli.top_rows import BASIC_RANK, Page, Row, backend_rows
from moetuned.cli.top_state import TopState, chosen_of, ordered
from moetuned.decide.headline import headlines
from moetuned.schema.history import Histories
from moetuned.schema.snapshot import BackendView, Snapshot
from moetuned.schema.units import format_duration, format_rate, format_ratio

_STALE_SECONDS = 10.0
_MOST_OTHERS = 4
_MOST_EVENTS = 20
_EVENTS_AT_ALL_HEIGHTS = 5
_EVENT_LINES = 2
_KEYS = ("q quit", "? help", "p pause", "s sort", "{arrows} choose", "Enter only this", "+ - time")
_HELP = (
    ("q, Ctrl-C", "quit"),
    ("p, Space", "pause, and go on"),
    ("s", "sort by reads, headroom or name"),
    ("arrows, j, k, Tab", "choose a backend: it is shown whole"),
    ("Enter", "only that one, and back"),
    ("+, -", "a column is 2, 4 or 10 seconds"),
    ("Ctrl-L", "draw everything anew"),
    ("", ""),
    ("reads", "what its process reads from disk"),
    ("refaults", "of that: what had been in memory before"),
    ("faults", "major faults; each reads a whole read-ahead window"),
    ("tokens", "tokens it generates a second"),
    ("experts", "how much of the experts is in memory"),
    ("headroom", "what is left before memory is full"),
    ("paging", "c cold, w warming, s steady, ~ streaming, T thrashing"),
    ("", "A gap is unknown, which is not zero."),
)


class Top(msgspec.Struct, frozen=True):
    """All that is drawn. `others`: who else reads and grows now, a clause each. `trouble`: why there is nothing newer."""

    snapshot: Snapshot | None = None
    history: Histories = Histories()
    others: tuple[str, ...] = ()
    trouble: str | None = None


class Screen(msgspec.Struct, frozen=True):
    """Where it is drawn. `rows` None: as many as there are lines, without the line of keys."""

    columns: int
    rows: int | None
    unicode: bool = True


def draw(top: Top, state: TopState, screen: Screen, now: float) -> list[Line]:
    """At most `screen.rows` lines of at most `screen.columns` columns. `now`: Unix seconds; times are in the local time zone."""
    page = Page(max(1, screen.columns), screen.unicode, state.seconds_a_column)
    if state.help and screen.rows is not None:
        return _help(page, screen.rows)
    head, foot = _head(top, state, page, now), [] if screen.rows is None else [_foot(page)]
    if screen.rows is None:
        return [*head, *_body(top, state, page, None, now)]
    if screen.rows < 6:
        head, foot = head[1:], []
    body = _body(top, state, page, max(0, screen.rows - len(head) - len(foot)), now)
    body += [()] * (screen.rows - len(head) - len(body) - len(foot))
    return [*head, *body, *foot][: screen.rows]


def _head(top: Top, state: TopState, page: Page, now: float) -> list[Line]:
    """The first line; below it what is wrong with what is shown."""
    snapshot = top.snapshot
    parts = ["moetuned"]
    if snapshot is not None:
        parts = [time.strftime("moetuned %T", time.localtime(snapshot.wall_seconds))]
    parts += ["PAUSED"] if state.paused else []
    parts += [f"sort {state.sort}", f"{state.seconds_a_column} s a column"]
    if snapshot is not None:
        up = format_duration(max(0.0, snapshot.wall_seconds - snapshot.daemon.started_wall_seconds))
        parts += [f"relief {snapshot.mode}", f"up {up}", _waits(snapshot)]
    text = parts[0]
    for part in parts[1:]:
        if part and columns_of(text) + 3 + columns_of(part) <= page.width:
            text += f" | {part}"
    lines: list[Line] = [((page.text(text), "yellow" if state.paused else "bold"),)]
    trouble = top.trouble or (None if snapshot is None or state.paused else _stale(snapshot, now))
    if trouble is not None:
        lines += [((line, "red"),) for line in page.wrapped(trouble, 3)]
    return lines


def _waits(snapshot: Snapshot) -> str:
    waits = []
    for name, ratio in (
        ("memory", snapshot.machine.stall_memory_some_ratio),
        ("disks", snapshot.machine.stall_io_some_ratio),
    ):
        if ratio is not None:
            waits.append(f"{format_ratio(ratio)} for {name}")
    return f"waits {', '.join(waits)}" if waits else ""


def _stale(snapshot: Snapshot, now: float) -> str | None:
    age = now - snapshot.wall_seconds
    late = _STALE_SECONDS + 2 * (snapshot.daemon.tick_interval_seconds or 0.0)
    return None if age <= late else f"This is {format_duration(age)} old: the daemon has not looked since."


def _foot(page: Page) -> Line:
    text = ""
    for key in _KEYS:
        part = key.format(arrows="↑↓" if page.unicode else "j k")
        if columns_of(text) + 2 * bool(text) + columns_of(part) > page.width:
            break
        text += ("  " if text else "") + part
    return ((text, "dim"),)


def _help(page: Page, rows: int) -> list[Line]:
    lines: list[Line] = [((page.text("moetunectl top: any key goes back"), "bold"),)]
    wide = page.width >= 60
    for key, what in _HELP:
        text = f"  {key:<18} {what}" if wide else f"{key}: {what}" if key else what
        lines.append(((page.text(text), ""),))
    return lines[:rows]


def _body(top: Top, state: TopState, page: Page, rows: int | None, now: float) -> list[Line]:
    """Backends, who else reads, disks, events."""
    snapshot = top.snapshot
    if snapshot is None:
        return []
    if not snapshot.backends:
        said = page.wrapped("No backend is running that moetuned knows, and the configuration names none.", 3)
        return _bounded([*(((line, "yellow"),) for line in said), (), *_events(snapshot, page, now)], rows)
    backends = ordered(snapshot.backends, state.sort)
    chosen = chosen_of(state, [one.name for one in backends])
    if state.only:
        backends = [one for one in backends if one.name == chosen]
    blocks = _blocks(top, snapshot, backends, chosen, page)
    below = [_others(top, backends, page), _disks(backends, page), _events(snapshot, page, now)]
    if rows is None:
        below[2] = _newest(below[2], _EVENTS_AT_ALL_HEIGHTS)
        lines = [line for block in blocks for line in (*(row.line for row in block), ())]
        return [*lines, *(line for section in below for line in section)]
    position = next((number for number, one in enumerate(backends) if one.name == chosen), 0)
    return _fit(blocks, position, below, rows, page)


def _bounded(lines: list[Line], rows: int | None) -> list[Line]:
    return lines if rows is None else lines[:rows]


def _blocks(
    top: Top, snapshot: Snapshot, backends: Sequence[BackendView], chosen: str | None, page: Page
) -> list[list[Row]]:
    kept = {one.backend: one for one in top.history.backends}
    last = (top.history.at_seconds or 0) // top.history.step_seconds
    marks = {one.name: "" if len(backends) == 1 else "> " if one.name == chosen else "  " for one in backends}
    styles = {one.backend: COLOURS[one.severity] for one in headlines(snapshot, snapshot.wall_seconds)}
    return [backend_rows(one, kept.get(one.name), last, page, marks[one.name], styles[one.name]) for one in backends]


def _fit(blocks: list[list[Row]], chosen: int, below: list[list[Line]], rows: int, page: Page) -> list[Line]:
    """Share `rows` out: a line for each backend, then the chosen one's rows, a few events, the others' rows, then all the rest."""
    blocks, chosen = _near(blocks, chosen, rows)
    given = [1] * len(blocks)
    left = rows - len(blocks)
    order = [chosen, *(number for number in range(len(blocks)) if number != chosen)]
    wanted = [sum(row.rank <= BASIC_RANK for row in block) for block in blocks]
    kept = _take(left - (wanted[chosen] - 1), [min(2, len(below[0])), min(1, len(below[1])), min(3, len(below[2]))])
    left -= sum(kept)
    for number in order:
        more = max(0, min(left, wanted[number] - given[number]))
        given[number] += more
        left -= more
    for number in order:
        more = max(0, min(left, len(blocks[number]) - given[number]))
        given[number] += more
        left -= more
    gaps = len(blocks) if left >= len(blocks) + 2 else 0
    left -= gaps
    for place, most in ((0, _MOST_OTHERS), (1, len(below[1])), (2, _MOST_EVENTS)):
        more = max(0, min(left, min(most, len(below[place])) - kept[place]))
        kept[place] += more
        left -= more
    lines: list[Line] = []
    for block, count in zip(blocks, given, strict=True):
        lines += [*_best(block, count, page), *([()] if gaps else [])]
    lines += below[0][: kept[0]] + below[1][: kept[1]] + _newest(below[2], kept[2])
    return lines[:rows]


def _near(blocks: list[list[Row]], chosen: int, rows: int) -> tuple[list[list[Row]], int]:
    """Where there are more backends than lines: those near the chosen one, and its place among them."""
    start = max(0, min(chosen - rows // 2, len(blocks) - rows))
    return blocks[start : start + max(1, rows)], chosen - start


def _take(left: int, wanted: list[int]) -> list[int]:
    """Of `left` lines as many as are wanted, the last ones first."""
    taken = [0] * len(wanted)
    for place in reversed(range(len(wanted))):
        taken[place] = max(0, min(left, wanted[place]))
        left -= taken[place]
    return taken


def _best(block: list[Row], count: int, page: Page) -> list[Line]:
    """The `count` rows that are worth most, in the order in which they are shown; a sentence that was cut off says so."""
    worth = sorted(range(len(block)), key=lambda number: (block[number].rank, number))[:count]
    lines = []
    for number in sorted(worth):
        row = block[number]
        lines.append(_cut_off(row.line, page) if row.goes_on and number + 1 not in worth else row.line)
    return lines


def _cut_off(line: Line, page: Page) -> Line:
    """The one piece of a verdict's line, with a word that it went on."""
    ((text, style),) = line
    shown = cut(text, page.width - len(page.more), "") + page.more
    return ((cut(shown, page.width, ""), style),)


def _others(top: Top, backends: Sequence[BackendView], page: Page) -> list[Line]:
    """Who reads and grows now; what the daemon found when it last asked."""
    found = list(top.others)
    shown = {one.pid for one in (() if top.snapshot is None else top.snapshot.backends)} - {None}
    for backend in backends:
        found += [
            one.text for one in backend.neighbours if one.text and one.pid not in shown and not _named(one.pid, top)
        ]
    label = "others"
    lines: list[Line] = []
    for text in dict.fromkeys(found):
        lines.append(((page.text(f"{label:<9}{text}"), ""),))
        label = ""
    return lines[:_MOST_OTHERS]


def _named(pid: int | None, top: Top) -> bool:
    """Whether it is said already what that process does now."""
    return any(re.search(rf"\(pid {pid}\b", text) for text in top.others)


def _disks(backends: Sequence[BackendView], page: Page) -> list[Line]:
    """The disks under each model, those of several models once."""
    lines: dict[tuple[str, ...], Line] = {}
    for backend in backends:
        names = tuple(device.name for device in backend.devices)
        if names and names not in lines and (text := _disk(backend)):
            lines[names] = ((page.text(f"{'disk' if not lines else '':<9}{', '.join(names)}: {text}"), ""),)
    return list(lines.values())


def _disk(backend: BackendView) -> str:
    signals, parts = backend.signals, []
    if (busy := signals.get("device_busy_ratio")) is not None:
        parts.append(f"{format_ratio(busy)} busy")
    if (rate := signals.get("device_read_bytes_per_second")) is not None:
        parts.append(f"{format_rate(rate)} read by all")
    if (wait := signals.get("device_read_latency_seconds")) is not None:
        parts.append(f"{wait * 1000:.1f} ms a request")
    parts += [device.detail for device in backend.devices if device.detail]
    return ", ".join(parts)


def _newest(lines: list[Line], count: int) -> list[Line]:
    """At most `count` lines of events, the newest, from the beginning of an event on; of one that is longer its beginning."""
    begins = [number for number, line in enumerate(lines) if not plain(line).startswith(" ")]
    whole = [number for number in begins if len(lines) - number <= count]
    return lines[(whole or begins[-1:] or [0])[0] :][:count]


def _events(snapshot: Snapshot, page: Page, now: float) -> list[Line]:
    """The last events, oldest first."""
    lines: list[Line] = []
    today = time.strftime("%F", time.localtime(now))
    for event in snapshot.events[-_MOST_EVENTS:]:
        at = time.localtime(event.wall_seconds)
        stamp = time.strftime("%T" if time.strftime("%F", at) == today else "%d %b ", at)
        subject = event.backend or "machine"
        about = "" if event.message.startswith(subject) else f" {subject}"
        text = f"{stamp[:8]:<8} {event.name}{about}: {event.message}"
        lines += [((line, ""),) for line in page.wrapped(text, _EVENT_LINES, 9)]
    return lines
