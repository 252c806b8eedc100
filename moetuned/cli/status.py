"""moetunectl status: what the daemon knows, on one screen."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

import click

from moetuned.api.errors import DaemonError
from moetuned.cli.socket_option import socket_option

if TYPE_CHECKING:
    from moetuned.api.client import Client
    from moetuned.schema.snapshot import Snapshot

WATCH_SECONDS = 1.0
WIDEST = 200
"""Columns; lines that are longer are hard to read."""
_CLEAR = "\x1b[H\x1b[J"


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl status\n  moetunectl status glm --watch\n"
    "  moetunectl status --capabilities\n"
    "  moetunectl status --json | jq -r '.headlines[] | .backend, .text, .advice'",
)
@click.argument("name", metavar="[BACKEND]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
@click.option(
    "--capabilities",
    is_flag=True,
    help="Say what the daemon can do from where it runs: each path and call that this config needs, rehearsed.",
)
@click.option("--watch", is_flag=True, help="Look again every second until Ctrl-C.")
@socket_option
def command(*, name: str | None, as_json: bool, capabilities: bool, watch: bool, path: str | None) -> None:
    """Say what is wrong and what to do about it, and all the rest.

    The first line is the worst of it; below is what every backend does and why, and what is tuned. With BACKEND only that one is shown.
    Exits 1 where there is no backend of that name. With --capabilities, what of it the machine refuses is turned off, and is said first;
    where no daemon answers, moetunectl rehearses itself and says so.
    """
    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket
    from moetuned.cli.terminal import forgive_terminal

    client = Client(path or find_socket(os.environ))
    forgive_terminal()
    if capabilities:
        if watch:
            raise click.UsageError("--capabilities is asked once; leave --watch out")
        _tell_capabilities(client, name, as_json=as_json)
        return
    if not watch:
        _show(client, name, as_json=as_json)
        return
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how a watch ends
        _watch(client, name, as_json=as_json)


def _watch(client: Client, name: str | None, *, as_json: bool) -> None:
    terminal = sys.stdout is not None and sys.stdout.isatty() and not as_json
    _show(client, name, as_json=as_json, clear=terminal)  # what is wrong from the beginning will not go away
    while True:
        time.sleep(WATCH_SECONDS)
        try:
            _show(client, name, as_json=as_json, clear=terminal)
        except DaemonError as error:  # it may be restarting: keep looking
            click.echo(f"{_CLEAR if terminal else ''}{error}", err=not terminal)


def _show(client: Client, name: str | None, *, as_json: bool, clear: bool = False) -> None:
    snapshot = only(client.status(), name)
    if as_json:
        _print_json(snapshot)
        return
    from moetuned.cli.status_view import render
    from moetuned.cli.terminal import terminal_size, wants_colour

    size = terminal_size()
    colour = wants_colour()
    # Who reads no more than the first line of what goes into a pipe or a file gets all of it.
    whole = sys.stdout is None or not sys.stdout.isatty()
    text = render(snapshot, min(size.columns, WIDEST), colour, time.time(), whole=whole)
    if clear:
        lines = text.splitlines()
        if len(lines) >= size.lines:
            lines = [*lines[: max(1, size.lines - 2)], "... (more: moetunectl status)"]
        text = _CLEAR + "\n".join(lines) + "\n"
    click.echo(text, nl=False, color=True if colour else None)


def _tell_capabilities(client: Client, name: str | None, *, as_json: bool) -> None:
    import msgspec

    from moetuned.api.errors import DaemonUnreachable
    from moetuned.cli.capabilities_view import render
    from moetuned.cli.terminal import tell

    try:
        found = client.capabilities()
    except DaemonUnreachable:
        from moetuned.cli.capabilities_here import rehearse_here

        found = rehearse_here()
    if name is not None:
        chosen = tuple(one for one in found.capabilities if one.backend in (None, name))
        found = msgspec.structs.replace(found, capabilities=chosen)
    tell(found, render, as_json=as_json)


def only(snapshot: Snapshot, name: str | None) -> Snapshot:
    """With this backend and its events, and those of the machine; all of it for None. Raises DaemonError where there is none of that name."""
    if name is None:
        return snapshot
    import msgspec

    chosen = tuple(view for view in snapshot.backends if view.name == name)
    if not chosen:
        known = ", ".join(view.name for view in snapshot.backends) or "none"
        raise DaemonError(f"There is no backend {name!r}; there are: {known}.")
    events = tuple(event for event in snapshot.events if event.backend in (None, name))
    return msgspec.structs.replace(snapshot, backends=chosen, events=events)


def _print_json(snapshot: Snapshot) -> None:
    import msgspec

    from moetuned.decide.headline import headlines
    from moetuned.schema.headline import StatusReport

    fields = {field: getattr(snapshot, field) for field in snapshot.__struct_fields__}
    report = StatusReport(**fields, headlines=headlines(snapshot, time.time()))
    click.echo(msgspec.json.encode(report).decode())
