"""`moetunectl alerts list`: all sinks, with what they are told and what became of it."""

from __future__ import annotations

import click

from moetuned.cli.backend_client import SETTINGS, client_at, json_option
from moetuned.cli.socket_option import socket_option


@click.command(
    context_settings=SETTINGS,
    epilog="Examples:\n\n\b\n  moetunectl alerts list\n  moetunectl alerts list --json | jq '.sinks[] | select(.waiting > 0)'",
)
@json_option
@socket_option
def subcommand(*, as_json: bool, path: str | None) -> None:
    """List the alert sinks: where to, what is told, the last delivery, and what waits."""
    from moetuned.cli.alerts_view import render_list
    from moetuned.cli.terminal import tell

    tell(client_at(path).alerts(), render_list, as_json=as_json)
