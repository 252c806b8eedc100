"""`moetunectl backend list`: all backends in a table."""

from __future__ import annotations

import click

from moetuned.cli.backend_client import SETTINGS, client_at, json_option, width
from moetuned.cli.socket_option import socket_option
from moetuned.cli.terminal import forgive_terminal


@click.command(
    context_settings=SETTINGS,
    epilog="Examples:\n\n\b\n  moetunectl backend list\n  moetunectl backend list --json | jq -r '.[].name'",
)
@json_option
@socket_option
def subcommand(*, as_json: bool, path: str | None) -> None:
    """List the backends that the config names and those that were found running."""
    import msgspec

    from moetuned.cli.backend_table import table
    from moetuned.cli.terminal import wants_colour

    backends = client_at(path).status().backends
    if as_json:
        click.echo(msgspec.json.encode(backends).decode())
        return
    forgive_terminal()
    click.echo(table(backends, width(), wants_colour()), nl=False, color=True if wants_colour() else None)
