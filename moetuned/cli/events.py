"""moetunectl events: what began and ended, newest last."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import click

from moetuned.cli.socket_option import socket_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from moetuned.schema.event import Event, EventName

_EVENT_ID = re.compile(r"[0-9a-f]{1,32}-[0-9a-f]{1,32}")


def _since(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | float | None:
    """An event's id, or Unix seconds."""
    if value is None or _EVENT_ID.fullmatch(value):
        return value
    import time

    from moetuned.parse.event_since import iso_time, looks_like_time
    from moetuned.schema.units import parse_duration

    try:
        if looks_like_time(value):
            return iso_time(value).timestamp()  # local, where it names no zone
        if not value.replace(".", "").isdigit():  # a number without a unit says nothing here
            return time.time() - parse_duration(value)
    except ValueError:
        pass
    raise click.BadParameter(
        f"{value[:60]!r} is no event id (take one from moetunectl events --json) and no time; write e.g. 1d, 2h or 2026-11-30T14:00."
    )


def _names(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[EventName]:
    from moetuned.schema.event import EventName

    known = {name.value: name for name in EventName}
    for value in values:
        if value not in known:
            raise click.BadParameter(f"{value[:60]!r} is no event; there are: {', '.join(known)}.")
    return [known[value] for value in values]


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl events\n  moetunectl events --since 1d --backend glm\n  moetunectl events --follow --event thrash_begin\n  moetunectl events --json | jq -r 'select(.name == \"thrash_begin\").message'",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, for programs.")
@click.option(
    "--since",
    metavar="WHEN",
    default=None,
    callback=_since,
    help="Only events of the last 1d, 2h or 10m, after a local time such as 2026-11-30T14:00, or after the one with this id (see --json). "
    "[the newest 256]",
)
@click.option("--backend", metavar="BACKEND", multiple=True, help="Only events of this backend; may be given again.")
@click.option(
    "--event",
    "names",
    metavar="EVENT",
    multiple=True,
    callback=_names,
    help="Only events of this name, with its kinds; may be given again.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on and print what happens, until Ctrl-C.")
@socket_option
def command(
    *,
    as_json: bool,
    since: str | float | None,
    backend: tuple[str, ...],
    names: list[EventName],
    follow: bool,
    path: str | None,
) -> None:
    """List the events that are kept, over restarts of moetuned; also while it does not run, for who may read its files."""
    from moetuned.api.client import Client
    from moetuned.api.errors import DaemonUnreachable
    from moetuned.api.socket_path import find_socket
    from moetuned.cli.kept_events import asked, followed, from_file
    from moetuned.cli.terminal import forgive_terminal

    client = Client(path or find_socket(os.environ))
    forgive_terminal()
    show = _printer(as_json=as_json, backends=backend, names=names)
    try:
        events = asked(client, since)
    except DaemonUnreachable as error:
        if follow:
            raise
        events = from_file(since, error)
    if not show(events) and not as_json and not follow:
        click.echo("No events yet." if since is None and not names and not backend else "No such events.", err=True)
    if follow:
        for more in followed(client, events, since):
            show(more)


def _printer(*, as_json: bool, backends: tuple[str, ...], names: list[EventName]) -> Callable[[Sequence[Event]], int]:
    import msgspec

    from moetuned.cli.status_view import event_lines
    from moetuned.schema.event import is_wanted

    def show(events: Sequence[Event]) -> int:
        wanted = [event for event in events if not backends or event.backend in backends]
        wanted = [event for event in wanted if is_wanted(event.name, names)]
        lines = [msgspec.json.encode(event).decode() for event in wanted]
        for line in lines if as_json else event_lines(wanted, width=None, with_date=True):
            click.echo(line)
        if wanted:
            sys.stdout.flush()  # who follows it through a pipe sees it now
        return len(wanted)

    return show
