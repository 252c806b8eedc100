"""moetunectl status: what the daemon knows, on one screen."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from moetuned.api.errors import DaemonError

if TYPE_CHECKING:
    from moetuned.api.client import Client

WATCH_SECONDS = 1.0
_CLEAR = "\x1b[H\x1b[J"


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl status\n  moetunectl status --watch\n  moetunectl status --json | jq '.backends[].verdict'",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
@click.option("--watch", is_flag=True, help="Look again every second until Ctrl-C.")
@click.option(
    "--socket",
    "path",
    metavar="PATH",
    default=None,
    help="The daemon's socket. [/run/moetuned/api.sock, or that of your own daemon]",
)
def command(*, as_json: bool, watch: bool, path: str | None) -> None:
    """Say in words what every backend does, why, and what is tuned."""
    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket
    from moetuned.cli.terminal import forgive_terminal

    client = Client(path or find_socket(os.environ))
    forgive_terminal()
    if not watch:
        _show(client, as_json=as_json)
        return
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how a watch ends
        _watch(client, as_json=as_json)


def _watch(client: Client, *, as_json: bool) -> None:
    terminal = sys.stdout.isatty() and not as_json
    while True:
        try:
            _show(client, as_json=as_json, clear=terminal)
        except DaemonError as error:  # it may be restarting: keep looking
            click.echo(f"{_CLEAR if terminal else ''}{error}", err=not terminal)
        time.sleep(WATCH_SECONDS)


def _show(client: Client, *, as_json: bool, clear: bool = False) -> None:
    import msgspec

    snapshot = client.status()
    if as_json:
        click.echo(msgspec.json.encode(snapshot).decode())
        return
    from moetuned.cli.status_view import render

    size = shutil.get_terminal_size()
    text = render(snapshot, min(size.columns, 120), wants_colour(), time.time())
    if clear:
        lines = text.splitlines()
        if len(lines) >= size.lines:
            lines = [*lines[: max(1, size.lines - 2)], "... (more: moetunectl status)"]
        text = _CLEAR + "\n".join(lines) + "\n"
    click.echo(text, nl=False, color=True if wants_colour() else None)


def wants_colour() -> bool:
    """Colour only for a terminal that can, and never against NO_COLOR (no-color.org)."""
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )
