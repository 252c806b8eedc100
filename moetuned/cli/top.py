"""moetunectl top: every backend live, with the last minutes as sparklines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from moetuned.cli.socket_option import socket_option
from moetuned.schema.units import parse_duration

if TYPE_CHECKING:
    from moetuned.cli.top_state import TopState
    from moetuned.cli.top_view import Top

SHORTEST_SECONDS = 0.2
LONGEST_SECONDS = 60.0


def _interval(_context: click.Context, _option: click.Parameter, value: str) -> float:
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise click.BadParameter("between 200ms and 60s")
    return seconds


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl top\n  moetunectl top --sort headroom --interval 5s\n  moetunectl top --once",
)
@click.option(
    "--interval",
    "interval_seconds",
    metavar="TIME",
    default="1s",
    callback=_interval,
    help="Between looks, 200ms to 60s. [1s]",
)
@click.option(
    "--sort",
    type=click.Choice(("reads", "headroom", "name")),
    default="reads",
    help="Which backend comes first: the one that reads most, the one with the least headroom, or by name. [reads]",
)
@click.option("--once", is_flag=True, help="Print one picture as text and end, for scripts.")
@socket_option
def command(*, interval_seconds: float, sort: str, once: bool, path: str | None) -> None:
    """Watch every backend live: verdict, reads, refaults, faults, tokens, residency and headroom, and who else reads.

    Keys: ? shows them all, q quits. It needs a terminal; elsewhere use --once, or moetunectl status --watch.
    """
    if not once:
        _check_terminal()
    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket
    from moetuned.cli.top_feed import Feed
    from moetuned.cli.top_others import Others
    from moetuned.cli.top_state import Sort, TopState

    feed = Feed(Client(path or find_socket(os.environ)), Others().look)
    state = TopState(sort=Sort(sort))
    if once:
        _print_once(feed.look(), state)
        return
    from moetuned.cli.live_screen import LiveScreen
    from moetuned.cli.progress_line import shows_unicode
    from moetuned.cli.terminal import wants_colour
    from moetuned.cli.top_loop import Looker, Loop, end_by

    first = feed.look()  # without a daemon there is nothing to begin with
    screen = LiveScreen(sys.stdout.fileno(), colour=wants_colour(), encoding=sys.stdout.encoding)
    try:
        ended_by = Loop(
            screen, Looker(feed.look), first, state, interval_seconds, unicode=shows_unicode(sys.stdout)
        ).run()
    finally:
        screen.close()
    if ended_by is not None:
        end_by(ended_by)


def _check_terminal() -> None:
    """Raises click.UsageError where nothing can be drawn."""
    instead = "use moetunectl status --watch, or moetunectl top --once for one picture as text"
    if sys.stdout is None or not sys.stdout.isatty():
        raise click.UsageError(f"The output is no terminal: {instead}.")
    if os.environ.get("TERM", "dumb") == "dumb":
        raise click.UsageError(f"This terminal cannot be drawn on (TERM is dumb or not set): {instead}.")


def _print_once(top: Top, state: TopState) -> None:
    import shutil
    import time

    from moetuned.cli.progress_line import shows_unicode
    from moetuned.cli.styled_line import styled
    from moetuned.cli.terminal import forgive_terminal, wants_colour
    from moetuned.cli.top_view import Screen, draw

    forgive_terminal()
    screen = Screen(shutil.get_terminal_size().columns, None, shows_unicode(sys.stdout))
    for line in draw(top, state, screen, time.time()):
        click.echo(styled(line, colour=wants_colour()), color=True if wants_colour() else None)
