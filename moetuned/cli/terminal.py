"""Writes an answer of the daemon: as JSON for programs, else in words on whatever terminal there is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

import click

T = TypeVar("T")


def forgive_terminal() -> None:
    """A terminal without UTF-8 shows "?", never a traceback."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")


def terminal_size() -> os.terminal_size:
    """As `shutil.get_terminal_size`, which costs a start its archive formats: COLUMNS and LINES, else the terminal's, else 80 by 24."""
    columns, lines = _number("COLUMNS"), _number("LINES")
    if not columns or not lines:
        try:
            real = (
                os.get_terminal_size(sys.__stdout__.fileno())
                if sys.__stdout__ is not None
                else os.terminal_size((0, 0))
            )
        except (OSError, ValueError, AttributeError):
            real = os.terminal_size((0, 0))
        columns, lines = columns or real.columns or 80, lines or real.lines or 24
    return os.terminal_size((columns, lines))


def wants_colour() -> bool:
    """Colour only for a terminal that can, and never against NO_COLOR (no-color.org)."""
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def tell(found: T, render: Callable[[T, int, bool], str], *, as_json: bool) -> None:
    """Print `found` as JSON, or what `render(found, columns, colour)` makes of it."""
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found).decode())
        return
    import shutil

    forgive_terminal()
    columns = min(shutil.get_terminal_size().columns, 120)
    click.echo(render(found, columns, wants_colour()), nl=False, color=True if wants_colour() else None)
