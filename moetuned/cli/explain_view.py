"""What `moetunectl explain` prints: a pure function of the explanations. Control characters of what came from outside are taken out."""

from __future__ import annotations

import textwrap

import click

from moetuned.cli.text_width import printable
from moetuned.decide.check_text import amount, label
from moetuned.schema.explanation import AxisExplanation, Explanation, Explanations
from moetuned.schema.units import format_duration
from moetuned.schema.verdict import Check

_SMALLEST_WIDTH = 40
_LABEL_WIDTH = 11
_BAD = frozenset({"thrashing", "critical", "absent"})
_GOOD = frozenset({"steady", "streaming", "ok", "idle", "decode", "prefill"})
_NO_HARM = _GOOD | {"warming", "no thrash, whatever else is beyond"}
"""What a rule may lead to that is no reason to worry: it is a condition that is met, no limit that is broken."""


def render(explained: Explanations, width: int, colour: bool) -> str:
    """All backends, ending in a newline; lines are at most `width` wide (at least 40)."""
    page = _Page(max(width, _SMALLEST_WIDTH), colour)
    if not explained.backends:
        page.text("There is no backend to explain: none runs that moetuned knows, or none was looked at yet.")
    for number, backend in enumerate(explained.backends):
        if number:
            page.text("")
        _backend(page, backend)
    return page.done()


class _Page:
    def __init__(self, width: int, colour: bool) -> None:
        self._width = width
        self._colour = colour
        self._lines: list[str] = []

    def text(self, text: str, fg: str | None = None, *, bold: bool = False, lead: str = "") -> None:
        """Wrapped; what follows the first line stands below its text."""
        for line in textwrap.wrap(printable(text), self._width - len(lead), break_on_hyphens=False) or [""]:
            styled = self._colour and (fg is not None or bold)
            self._lines.append(click.style(lead + line, fg=fg, bold=bold or None) if styled else lead + line)
            lead = " " * len(lead)

    def field(self, name: str, text: str, fg: str | None = None) -> None:
        self.text(text, fg, lead=f"  {name}".ljust(_LABEL_WIDTH))

    def done(self) -> str:
        return "\n".join(line.rstrip() for line in self._lines) + "\n"


def _backend(page: _Page, backend: Explanation) -> None:
    page.text(backend.backend, bold=True)
    asked = {check.signal for axis in backend.axes for check in axis.checks if check.unknown is not None}
    for axis in backend.axes:
        _axis(page, axis)
    rest: dict[str, list[str]] = {}
    for unknown in backend.unknown:
        if unknown.signal not in asked:
            rest.setdefault(unknown.why, []).append(unknown.signal)
    if rest:
        page.text("other signals that are unknown, which no rule asks for now", bold=True)
        for why, names in rest.items():
            page.text(f"{', '.join(names)}: {why}", lead="  ")


def _axis(page: _Page, axis: AxisExplanation) -> None:
    since = (
        "" if axis.since_seconds is None or axis.since_seconds < 1 else f" for {format_duration(axis.since_seconds)}"
    )
    fg = "red" if axis.value in _BAD else "green" if axis.value in _GOOD else "yellow"
    page.text(f"{axis.axis}: {axis.value}{since}", fg, bold=True)
    name = "because"
    for reason in axis.reasons:
        page.field(name, reason)
        name = ""
    for check in axis.checks:
        page.field(_standing(check), _finding(check) + _leads_to(check), _colour(check))
    name = "would be"
    for change in axis.changes:
        page.field(name, change)
        name = ""


def _finding(check: Check) -> str:
    """With the words of its rule in front, as the question that it answers."""
    text = check.text
    if check.unknown is not None and check.aside is None and check.beyond is None:  # the line begins with "unknown"
        value = "" if check.value is None else f" {amount(check.signal, check.value)}"
        text = f"{label(check.signal)}{value}: {check.unknown}"
    return f"{check.rule}? {text}" if check.rule else text


def _leads_to(check: Check) -> str:
    counts = check.would and check.aside is None and check.beyond is not None
    return f" -> {check.would}" if counts else ""


def _standing(check: Check) -> str:
    if check.aside is not None:
        return "aside"
    if check.beyond is None:
        return "unknown"
    if check.would in _NO_HARM:
        return "met" if check.beyond else "not met"
    return "BEYOND" if check.beyond else "within"


def _colour(check: Check) -> str | None:
    if not check.beyond or check.aside is not None:
        return None
    return "yellow" if check.would not in _NO_HARM else "green" if check.would in _GOOD else None
