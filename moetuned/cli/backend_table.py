"""What `moetunectl backend list` prints: a pure function of the backends. What came from outside is stripped of control characters."""

from __future__ import annotations

from collections.abc import Sequence

import click

from moetuned.cli.text_width import printable
from moetuned.schema.snapshot import BackendView
from moetuned.schema.units import format_bytes

_HEAD = ("NAME", "STATE", "BY", "PID", "PORT", "CONTEXT", "SLOTS", "MEMORY", "KIND", "MODEL")
_SECOND = (8, 7, 6, 5, 4)
"""From one of these on a second line takes the columns where one is too narrow for all: from the first with which the rest fits."""
_SHORTEST_NAME = 8
_GAP = "  "
_UNKNOWN = "-"
_BAD = frozenset(("absent", "stopped", "waiting", "broken", "hung", "thrashing"))
_BUSY = frozenset(("loading", "starting", "restarting", "draining", "ending", "paused", "unknown"))


def table(backends: Sequence[BackendView], width: int, colour: bool) -> str:
    """All backends, ending in a newline. One line each, two where the terminal is narrow; `-` is unknown or none."""
    if not backends:
        return "There is no backend: the config names none, and none runs that moetuned knows.\n"
    rows = [_row(one) for one in backends]
    if _total(rows) > width:
        return _in_two_lines(rows, width, colour)
    lines = [_line(row, _widths(rows), colour) for row in (_HEAD, *rows)]
    return "\n".join(lines) + "\n"


def _row(view: BackendView) -> tuple[str, ...]:
    context = view.context
    now = _UNKNOWN if context.now is None else str(context.now)
    if context.preferred is not None and context.preferred != context.now:
        now += f"/{context.preferred}"
    own = view.memory.backend_anonymous_bytes
    cells = (
        view.name,
        view.state or view.verdict.phase.value,
        view.supervision.by or _UNKNOWN,
        _UNKNOWN if view.pid is None else str(view.pid),
        _port(view.url),
        now,
        _UNKNOWN if view.launch.slots is None else str(view.launch.slots),
        _UNKNOWN if own is None else format_bytes(own),
        view.kind,
        _UNKNOWN if view.model_path is None else view.model_path.rpartition("/")[2],
    )
    return tuple(printable(cell) for cell in cells)


def _port(url: str | None) -> str:
    _, colon, port = (url or "").rpartition(":")
    return port.rstrip("/") if colon and port.rstrip("/").isdigit() else _UNKNOWN


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(len(row[column]) for row in (_HEAD, *rows)) for column in range(len(_HEAD))]


def _total(rows: Sequence[tuple[str, ...]]) -> int:
    return sum(_widths(rows)) + len(_GAP) * (len(_HEAD) - 1)


def _in_two_lines(rows: Sequence[tuple[str, ...]], width: int, colour: bool) -> str:
    everywhere = _widths(rows)
    for second in _SECOND:
        spare = width - sum(everywhere[1:second]) - len(_GAP) * (second - 1)
        if spare >= _SHORTEST_NAME:
            break
    widths = [max(_SHORTEST_NAME, min(everywhere[0], spare)), *everywhere[1:second]]
    lines = []
    for row in (_HEAD, *rows):
        lines.append(_line((_short(row[0], widths[0]), *row[1:second]), widths, colour))
        lines.append(_short(f"    {', '.join(row[second:])}", width))
    return "\n".join(lines) + "\n"


def _line(row: Sequence[str], widths: Sequence[int], colour: bool) -> str:
    cells = [cell.ljust(room) for cell, room in zip(row, widths, strict=True)]
    text = _GAP.join(cells).rstrip()
    if not colour:
        return text
    if tuple(row) == _HEAD[: len(row)]:
        return click.style(text, bold=True)
    fg = "red" if row[1] in _BAD else "yellow" if row[1] in _BUSY else "green"
    cells[1] = click.style(cells[1], fg=fg)
    return _GAP.join(cells).rstrip()


def _short(text: str, room: int) -> str:
    """Cut in the middle: what tells models and ports apart stands at the end."""
    if len(text) <= room:
        return text
    end = (room - 2) // 2
    return f"{text[: room - 2 - end]}..{text[len(text) - end :]}"
