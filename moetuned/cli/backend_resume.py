"""`moetunectl backend resume`: let a paused backend go on."""

from __future__ import annotations

import click

from moetuned.cli.backend_client import SETTINGS, ask, backend_named, client_at, name_argument, say
from moetuned.cli.socket_option import socket_option


@click.command(context_settings=SETTINGS, epilog="Examples:\n\n\b\n  sudo moetunectl backend resume glm")
@name_argument
@socket_option
def subcommand(*, name: str, path: str | None) -> None:
    """Let BACKEND go on after a pause (SIGCONT)."""
    client = client_at(path)
    backend_named(client.status(), name)
    ask(client, backend=name, do="resume")
    say(f"{name} goes on")
