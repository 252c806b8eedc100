"""A page of text: labels in a column of their own, lines of at most a width, bars, and colour only where it is wanted."""

from __future__ import annotations

from collections.abc import Sequence

import click

from moetuned.cli.text_width import columns_of, printable, wrap, wrap_around_commands

LABEL_WIDTH = 12
SMALLEST_WIDTH = 40
EMPTY = "░"


class Page:
    """Lines of at most `width` columns. What comes from outside is made printable."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width = width
        self._colour = colour
        self._lines: list[str] = []

    def raw(self, line: str, fg: str | None = None, *, bold: bool = False) -> None:
        """A line as it is."""
        self._lines.append(click.style(line, fg=fg, bold=bold or None) if self._colour and (fg or bold) else line)

    def blank(self) -> None:
        """An empty line."""
        self._lines.append("")

    def text(self, text: str, fg: str | None = None, *, bold: bool = False, whole: bool = False) -> None:
        """Text over the whole width; `whole`: in one line, however long."""
        clean = printable(text)
        for line in [clean] if whole else wrap_around_commands(clean, self.width):
            self.raw(line, fg, bold=bold)

    def field(self, label: str, text: str, fg: str | None = None) -> None:
        """Text beside a label; "" goes on below the field before."""
        lead = f"  {label}".ljust(LABEL_WIDTH)
        for line in wrap(printable(text), self.width - LABEL_WIDTH) or [""]:
            self.raw(lead + line, fg)
            lead = " " * LABEL_WIDTH

    def items(self, texts: Sequence[str]) -> None:
        """Goes on below the field before with these, separated by commas and broken between them."""
        lines: list[str] = []
        for number, text in enumerate(texts):
            item = printable(text) + ("," if number + 1 < len(texts) else "")
            if lines and columns_of(f"{lines[-1]} {item}") <= self.width - LABEL_WIDTH:
                lines[-1] = f"{lines[-1]} {item}"
            else:
                lines.append(item)
        for line in lines:
            self.field("", line)

    def done(self) -> str:
        """All lines, ending in a newline."""
        return "\n".join(self._lines) + "\n"

    def bar(self, parts: Sequence[tuple[str, float]], whole: float, reserve: int) -> str:
        """A bar that leaves `reserve` columns for what stands behind it; sizes beyond `whole` are cut off."""
        columns = max(8, min(40, self.width - LABEL_WIDTH - reserve))
        drawn = ""
        seen = 0.0
        for sign, size in parts:
            seen += max(0.0, size)
            drawn += sign * (min(columns, round(columns * seen / whole)) - len(drawn))
        return drawn + EMPTY * (columns - len(drawn))

    def ends(self, left: str, right: str) -> bool:
        """One line with something at both ends; False, and no line, where there is no room for both."""
        room = self.width - columns_of(left)
        if columns_of(right) + 2 > room:
            return False
        self.raw(left + " " * (room - columns_of(right)) + right)
        return True
