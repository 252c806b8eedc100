"""`moetunectl backend pause`: stop a backend's process where it is."""

from __future__ import annotations

import click

from moetuned.cli.backend_client import SETTINGS, ask, backend_named, client_at, name_argument, say
from moetuned.cli.socket_option import socket_option


@click.command(
    context_settings=SETTINGS,
    epilog="Examples:\n\n\b\n  sudo moetunectl backend pause glm\n  sudo moetunectl backend resume glm",
)
@name_argument
@socket_option
def subcommand(*, name: str, path: str | None) -> None:
    """Stop BACKEND where it is (SIGSTOP). It answers nothing until it is resumed; its memory stays.

    Requests that are being answered wait, and those who asked may give up. Only a backend that moetuned runs can be paused.
    """
    from moetuned.schema.units import format_bytes

    client = client_at(path)
    memory = backend_named(client.status(), name).memory.backend_anonymous_bytes
    answer = ask(client, backend=name, do="pause")
    held = "its memory stays" if memory is None else f"its memory stays ({format_bytes(memory)} of its own)"
    cut = f"{answer.busy} that are being answered wait" if answer.busy else "requests wait, or give up"
    say(
        f"{name} is paused: it answers nothing and reads nothing, {held}, {cut}. To let it go on: moetunectl backend resume {name}"
    )
