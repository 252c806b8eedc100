"""A picture (SVG) of what a command prints on a terminal, with its colours: for pages that cannot show colour otherwise."""  # noqa: INP001

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from moetuned.cli.text_width import columns_of

CELL_WIDTH, LINE_HEIGHT, FONT_SIZE, MARGIN = 7.8, 17, 13, 14
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
PAPER, INK, PROMPT_INK = "#16191f", "#d7dae0", "#8b93a3"
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341"}
"""Colours of the letters (SGR of ECMA-48), each with a contrast of more than 7 to the paper, which is the same by day and by night."""
_SGR = re.compile(r"\x1b\[([0-9;]*)m")


class Piece(NamedTuple):
    """Letters of one style, from that column on."""

    column: int
    text: str
    colour: str
    bold: bool


def pieces(line: str, colour: str = INK) -> Iterator[Piece]:
    """What is to be drawn of a line. Raises ValueError for a style that is not known."""
    column, bold, now = 0, False, colour
    for number, part in enumerate(_SGR.split(line)):
        if number % 2 == 0:
            if part.strip():
                yield Piece(column, part, now, bold)
            column += columns_of(part)
            continue
        for code in part.split(";"):
            if code in ("", "0"):
                now, bold = colour, False
            elif code == "1":
                bold = True
            elif code in COLOURS:
                now = COLOURS[code]
            else:
                raise ValueError(f"there is no drawing of style {code}")


def terminal_svg(command: str, text: str, title: str) -> str:
    """The command behind a prompt, and what it printed below. `title` is what is read to who cannot see it."""
    lines = text.rstrip("\n").split("\n")
    columns = max(columns_of(_SGR.sub("", line)) for line in (f"$ {command}", *lines))
    width, height = 2 * MARGIN + columns * CELL_WIDTH, 2 * MARGIN + (len(lines) + 2) * LINE_HEIGHT
    rows = [*_row(0, f"$ {command}", PROMPT_INK)]
    for number, line in enumerate(lines):
        rows += _row(number + 2, line, INK)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
            f'<g font-family="{FONT}" font-size="{FONT_SIZE}" xml:space="preserve">',
            *rows,
            "</g>",
            "</svg>",
            "",
        )
    )


def _row(number: int, line: str, colour: str) -> Iterator[str]:
    y = MARGIN + number * LINE_HEIGHT + FONT_SIZE
    for piece in pieces(line, colour):
        x = MARGIN + piece.column * CELL_WIDTH
        # The length is said, so that columns stay columns in whatever font is there.
        length = columns_of(piece.text) * CELL_WIDTH
        weight = ' font-weight="bold"' if piece.bold else ""
        yield (
            f'<text x="{x:.1f}" y="{y}" fill="{piece.colour}"{weight} textLength="{length:.1f}" '
            f'lengthAdjust="spacingAndGlyphs">{escape(piece.text)}</text>'
        )
