"""moetunectl events: what began and ended, newest last."""

from __future__ import annotations

import os
import re

import click

_EVENT_ID = re.compile(r"[0-9a-f]{1,32}-[0-9a-f]{1,32}")


def _event_id(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and _EVENT_ID.fullmatch(value) is None:
        raise click.BadParameter(f"{value[:60]!r} is no event id; take one from moetunectl events --json.")
    return value


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl events\n  moetunectl events --json | jq -r 'select(.name == \"thrash_begin\").message'",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, for programs.")
@click.option(
    "--since",
    metavar="ID",
    default=None,
    callback=_event_id,
    help="Only events after the one with this id (see --json).",
)
@click.option(
    "--socket",
    "path",
    metavar="PATH",
    default=None,
    help="The daemon's socket. [/run/moetuned/api.sock, or that of your own daemon]",
)
def command(*, as_json: bool, since: str | None, path: str | None) -> None:
    """List the events that the daemon keeps."""
    import msgspec

    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket
    from moetuned.cli.status_view import event_lines
    from moetuned.cli.terminal import forgive_terminal

    events = Client(path or find_socket(os.environ)).events(since)
    forgive_terminal()
    if as_json:
        for event in events:
            click.echo(msgspec.json.encode(event).decode())
    elif not events:
        click.echo("No events yet.", err=True)
    else:
        for line in event_lines(events, width=None, with_date=True):
            click.echo(line)
