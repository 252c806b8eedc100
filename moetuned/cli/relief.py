"""`moetunectl relief`: what relief would do about memory that nears its limit."""

from __future__ import annotations

import os

import click

from moetuned.cli.socket_option import socket_option


@click.group(
    name="relief",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl relief plan\n  moetunectl relief plan glm --json",
)
def command() -> None:
    """See what moetuned does before a backend runs out of memory."""


@command.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl relief plan\n  moetunectl relief plan glm --json | jq '.backends[].steps'",
)
@click.argument("backend", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
@socket_option
def plan(*, backend: str | None, as_json: bool, path: str | None) -> None:
    """Say what relief would do now for each BACKEND and why: every step with what it would free, taken or skipped.

    Changes nothing. Also with relief.mode observe, in which moetuned restarts nothing by itself.
    """
    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket
    from moetuned.cli.relief_view import render
    from moetuned.cli.terminal import tell

    tell(Client(path or find_socket(os.environ)).relief(backend), render, as_json=as_json)
