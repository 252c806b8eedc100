"""Events for `moetunectl events`: from the daemon, with older ones from its file where that may be read, or from the file alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import click

from moetuned.api.client import Client
from moetuned.api.errors import DaemonUnreachable
from moetuned.schema.event import Event

_FOLLOW_SECONDS = 1.0
MOST_WITHOUT_SINCE = 256
_MOST_SEEN = 10_000


def asked(client: Client, since: str | float | None) -> list[Event]:
    """What the daemon keeps after an id or a Unix time (None: the newest), with what only its file still has."""
    answer = client.kept_events(since)
    if answer.complete or answer.file is None or since is None:
        return list(answer.events)
    from moetuned.state import event_store

    known = {event.id for event in answer.events}
    try:
        kept = event_store.read_all(os.path.dirname(answer.file))
    except OSError as error:
        click.echo(f"moetunectl: older events are in {answer.file}: {error.strerror}; try it with sudo.", err=True)
        return list(answer.events)
    return [*(event for event in after(kept, since) if event.id not in known), *answer.events]


def from_file(since: str | float | None, why: DaemonUnreachable) -> list[Event]:
    """What is in the file of the usual state directory, with a word on that. Raises `why` where nothing can be read there."""
    from moetuned.state import event_store
    from moetuned.state.undo_journal import default_path

    directory = os.path.dirname(default_path(os.environ.get("MOETUNED_STATE_DIR")))
    try:
        kept = event_store.read_all(directory)
    except OSError:
        kept = []
    if not kept:
        raise why
    file = event_store.event_file(directory)
    click.echo(f"moetunectl: moetuned is not running; these are from {file}.", err=True)
    return after(kept, since) if since is not None else kept[-MOST_WITHOUT_SINCE:]


def after(events: list[Event], since: str | float) -> list[Event]:
    """Those after an id or a Unix time; all where no event has the id."""
    if isinstance(since, float):
        return [event for event in events if event.wall_seconds > since]
    found = next((index for index, event in enumerate(events) if event.id == since), -1)
    return events[found + 1 :]


def followed(client: Client, events: list[Event], since: str | float | None) -> Iterator[list[Event]]:
    """What comes after `events`, as it comes, for ever; a daemon that is gone is waited for."""
    last = events[-1].id if events else since
    seen = {event.id for event in events}
    gone = False
    while True:
        time.sleep(_FOLLOW_SECONDS)
        try:
            more = client.events(last)
        except DaemonUnreachable as error:
            if not gone:
                click.echo(f"moetunectl: {error} Waiting for it.", err=True)
            gone = True
            continue
        gone = False
        yield [event for event in more if event.id not in seen]
        if more:  # after one that it does not know the daemon gives all that it has: some may come again
            last = more[-1].id
            seen = {*seen, *(event.id for event in more)} if len(seen) < _MOST_SEEN else {event.id for event in more}
