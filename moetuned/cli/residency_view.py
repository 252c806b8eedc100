"""Residency as text, pure: the report of `moetunectl residency`, the heat map of experts, and the one line of a change.

Without UTF-8 everything is ASCII; without colour nothing but text is printed.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence

import click
import msgspec

from moetuned.cli.model_residency import Look, PartResidency
from moetuned.cli.verify_view import printable
from moetuned.schema.heat import ExpertPages
from moetuned.schema.units import format_bytes, format_duration, format_ratio

MOST_ROWS = 48
"""More layers than this share rows."""
SMALLEST_WIDTH = 50
_BAR_WIDTH = 20
_FIELD_WIDTH = 12


class Style(msgspec.Struct, frozen=True):
    """How to draw: columns, whether colour, and whether the output can show more than ASCII."""

    width: int = 80
    colour: bool = False
    unicode: bool = True

    @property
    def levels(self) -> str:
        """Signs of a cell: nothing, under a third, under two thirds, the most, and all of it resident."""
        return "·░▒▓█" if self.unicode else ".-+*#"


class ExpertsReport(msgspec.Struct, frozen=True):
    """Residency of each expert, in rows of layers; None where a layer has no such expert."""

    layers: int
    experts: int
    resident_ratio: tuple[tuple[float | None, ...], ...]


class ServedReport(msgspec.Struct, frozen=True):
    """What the resident experts would have served of the uses that were seen lately.

    `ratio` None with `unknown` a sentence: nothing usable was learned of this model.
    """

    ratio: float | None = None
    looks: int | None = None
    age_seconds: float | None = None
    unknown: str | None = None


class ResidencyReport(msgspec.Struct, frozen=True):
    """The documented JSON of `moetunectl residency`, bytes. `unknown` says why all others are None."""

    model: str
    size_bytes: int
    resident_bytes: int | None
    expert_size_bytes: int | None
    expert_resident_bytes: int | None
    other_size_bytes: int | None
    other_resident_bytes: int | None
    parts: tuple[PartResidency, ...]
    filesystem: str | None
    by: str | None
    unknown: str | None
    served: ServedReport | None = None
    experts: ExpertsReport | None = None
    notes: tuple[str, ...] = ()


def experts_report(pages: ExpertPages) -> ExpertsReport:
    """The cells as shares."""
    cells = [None if not whole else cached / whole for cached, whole in zip(pages.cached, pages.whole, strict=True)]
    rows = tuple(tuple(cells[layer * pages.experts : (layer + 1) * pages.experts]) for layer in range(pages.layers))
    return ExpertsReport(pages.layers, pages.experts, rows)


def change_line(before: Look, after: Look) -> str:
    """One line: "experts 12 % -> 61 %, other 100 %"; what stayed the same is said once."""
    if before.resident_bytes is None or after.resident_bytes is None:
        return f"residency unknown: {before.unknown or after.unknown}"
    shares = list(zip(_shares(before), _shares(after), strict=False))
    if len(_shares(before)) != len(_shares(after)) or not shares:
        return "residency unknown: the model was replaced meanwhile"
    return ", ".join(f"{name} {was}" if was == now else f"{name} {was} -> {now}" for (name, was), (_, now) in shares)


def wrapped(text: str, width: int, *, inside: bool = False) -> list[str]:
    """A sentence of a report in lines as wide as the rest of it, the following ones indented. `inside`: below the first line."""
    first, following = ("  ", "    ") if inside else ("", "  ")
    return textwrap.wrap(
        printable(text),
        max(SMALLEST_WIDTH, width),
        initial_indent=first,
        subsequent_indent=following,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _shares(look: Look) -> list[tuple[str, str]]:
    size, experts, cached = (
        sum(part.size_bytes for part in look.parts),
        look.expert_size_bytes,
        look.expert_resident_bytes,
    )
    resident = look.resident_bytes or 0
    if not experts or cached is None:
        return [("in memory", share(resident, size))]
    return [("experts", share(cached, experts)), ("other", share(resident - cached, size - experts))]


def share(part: int, whole: int) -> str:
    """A percentage that says 0 % and 100 % only where it is nothing and all."""
    if whole <= 0:
        return "none"
    percent = round(100 * part / whole)
    if part > 0 and percent == 0:
        return "under 1 %"
    if part < whole and percent == 100:
        return "over 99 %"
    return f"{percent} %"


def render(report: ResidencyReport, pages: ExpertPages | None, style: Style) -> str:
    """The report for people, ending in a newline. `pages`: also the heat map."""
    width = max(SMALLEST_WIDTH, style.width)
    count = len(report.parts)
    files = f" in {count} files" if count > 1 else ""
    name = printable(os.path.basename(report.model))
    if report.resident_bytes is None:
        lines = wrapped(f"{name}: {format_bytes(report.size_bytes)}, what of it is in memory is unknown", width)
        lines += _field("why", report.unknown or "", width)
    else:
        resident = share(report.resident_bytes, report.size_bytes)
        lines = [
            f"{name}: {format_bytes(report.size_bytes)}{files}, {resident} in memory ({format_bytes(report.resident_bytes)})"
        ]
        lines += _table(report, style)
        lines += _served(report, width)
        if pages is not None:
            lines += ["", *heat_map(pages, style)]
    for note in report.notes:
        lines += _field("note", note, width)
    return "\n".join(lines) + "\n"


def _table(report: ResidencyReport, style: Style) -> list[str]:
    rows = []
    if report.expert_size_bytes and report.expert_resident_bytes is not None:
        rows.append(("experts", report.expert_resident_bytes, report.expert_size_bytes, ""))
        rows.append(("other", report.other_resident_bytes or 0, report.other_size_bytes or 0, ""))
    if len(report.parts) > 1:
        rows += [
            (printable(os.path.basename(part.path)), part.resident_bytes, part.size_bytes, "") for part in report.parts
        ]
    elif not rows:
        rows.append(("all", report.resident_bytes or 0, report.size_bytes, ""))
    widest = min(max(len(label) for label, *_ in rows), max(8, style.width - _BAR_WIDTH - 38))
    lines = []
    for label, part, whole, more in rows:
        shown = label if len(label) <= widest else "..." + label[3 - widest :]
        sizes = f"{format_bytes(part)} of {format_bytes(whole)}"
        line = f"  {shown.ljust(widest)}  {bar(part, whole, style)} {share(part, whole):>9}  {sizes}"
        lines.append(line + more if len(line + more) <= style.width else line)
    return lines


def bar(part: int, whole: int, style: Style) -> str:
    """A bar of `part` of `whole`; a cell is filled when all of it is there."""
    full, empty = ("█", "░") if style.unicode else ("#", ".")
    filled = _BAR_WIDTH * part // whole if whole > 0 else 0
    return full * filled + empty * (_BAR_WIDTH - filled)


def _served(report: ResidencyReport, width: int) -> list[str]:
    served = report.served
    if served is None:
        return []
    if served.ratio is None:
        return _field("served", f"unknown: {served.unknown}", width)
    looks = "1 look" if served.looks == 1 else f"{served.looks} looks"
    learned = f"learned in {looks}, the last {format_duration(served.age_seconds)} ago"
    return _field(
        "served",
        f"the resident experts would have served {format_ratio(served.ratio)} of recent uses ({learned})",
        width,
    )


def heat_map(pages: ExpertPages, style: Style) -> list[str]:
    """Layers down, experts across, a sign for how much is resident; several experts or layers share a cell where they must."""
    layers_each = max(1, -(-pages.layers // MOST_ROWS))
    rows = range(0, pages.layers, layers_each)
    labels = [_label(first, min(pages.layers, first + layers_each) - 1) for first in rows]
    left = max((len(label) for label in labels), default=0)
    columns = max(8, style.width - left - 3)
    experts_each = max(1, -(-pages.experts // columns))
    lines = [
        f"  {line}"
        for text in _legend(pages, layers_each, experts_each, style)
        for line in textwrap.wrap(text, max(40, style.width - 2))
    ]
    for first, label in zip(rows, labels, strict=True):
        cells = "".join(
            _sign(pages, range(first, min(pages.layers, first + layers_each)), at, experts_each, style.levels)
            for at in range(0, pages.experts, experts_each)
        )
        lines.append(f"  {label.rjust(left)} {_tinted(cells, style)}".rstrip())
    return lines


def _label(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _legend(pages: ExpertPages, layers_each: int, experts_each: int, style: Style) -> tuple[str, str]:
    none, little, some, most, every = tuple(style.levels)
    cell = f"{experts_each} experts" if experts_each > 1 else "an expert"
    if layers_each > 1:
        cell += f" in {layers_each} layers"
    return (
        f"{pages.layers} layers (down) of {pages.experts} experts (across), a sign for {cell}",
        f"in memory: {none} nothing, {little} under a third, {some} under two thirds, {most} more, {every} all",
    )


def _sign(pages: ExpertPages, layers: Sequence[int], expert: int, experts_each: int, levels: str) -> str:
    cached = whole = 0
    for layer in layers:
        first = layer * pages.experts + expert
        last = layer * pages.experts + min(pages.experts, expert + experts_each)
        cached += sum(pages.cached[first:last])
        whole += sum(pages.whole[first:last])
    return " " if whole == 0 else levels[level(cached, whole)]


def level(cached: int, whole: int) -> int:
    """0 nothing, 1 under a third, 2 under two thirds, 3 more, 4 all; `whole` is not 0."""
    if cached <= 0:
        return 0
    return 4 if cached >= whole else 1 + 3 * cached // whole


def _tinted(cells: str, style: Style) -> str:
    """Colour only repeats what the sign says."""
    if not style.colour:
        return cells
    colours = dict(zip(style.levels, ("bright_black", "blue", "cyan", "green", "bright_green"), strict=True))
    drawn, start = "", 0
    for end in range(1, len(cells) + 1):
        if end == len(cells) or cells[end] != cells[start]:
            drawn += click.style(cells[start:end], fg=colours.get(cells[start]))
            start = end
    return drawn


def _field(label: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=f"  {label}".ljust(_FIELD_WIDTH),
        subsequent_indent=" " * _FIELD_WIDTH,
        break_on_hyphens=False,
    )
