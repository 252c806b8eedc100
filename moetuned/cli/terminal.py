"""Writes an answer of the daemon: as JSON for programs, else in words on whatever terminal there is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click

T = TypeVar("T")


def forgive_terminal() -> None:
    """A terminal without UTF-8 shows "?", never a traceback."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")


def tell(found: T, render: Callable[[T, int, bool], str], *, as_json: bool) -> None:
    """Print `found` as JSON, or what `render(found, columns, colour)` makes of it."""
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found).decode())
        return
    import shutil

    from moetuned.cli.status import wants_colour

    forgive_terminal()
    columns = min(shutil.get_terminal_size().columns, 120)
    click.echo(render(found, columns, wants_colour()), nl=False, color=True if wants_colour() else None)
