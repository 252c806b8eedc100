"""`moetunectl backend show`: all that is known of one backend."""

from __future__ import annotations

import time

import click

from moetuned.cli.backend_client import SETTINGS, backend_named, client_at, json_option, name_argument, width
from moetuned.cli.socket_option import socket_option
from moetuned.cli.terminal import forgive_terminal


@click.command(
    context_settings=SETTINGS,
    epilog="Examples:\n\n\b\n  moetunectl backend show glm\n  moetunectl backend show glm --json | jq .supervision.restarts",
)
@name_argument
@json_option
@socket_option
def subcommand(*, name: str, as_json: bool, path: str | None) -> None:
    """Say all that is known of BACKEND: who runs it, how it was started, what may be changed, why it was restarted."""
    import msgspec

    from moetuned.cli.backend_sheet import sheet
    from moetuned.cli.terminal import wants_colour

    found = backend_named(client_at(path).status(), name)
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    forgive_terminal()
    text = sheet(found, width(), wants_colour(), time.time())
    click.echo(text, nl=False, color=True if wants_colour() else None)
