"""`moetunectl alerts test`: the daemon sends a test to a sink, or to all, as it sends an alert; this waits and says what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from moetuned.cli.backend_client import SETTINGS, client_at, json_option
from moetuned.cli.socket_option import socket_option

if TYPE_CHECKING:
    from moetuned.api.client import Client
    from moetuned.schema.alert_view import AlertSinkView

_POLL_SECONDS = 0.2
_EXTRA_SECONDS = 45.0
"""Beyond the sink's own time: to start what delivers takes long while memory is short."""


@click.command(
    context_settings=SETTINGS,
    epilog="Examples:\n\n\b\n  sudo moetunectl alerts test\n  sudo moetunectl alerts test ntfy",
)
@click.argument("sink", required=False)
@json_option
@socket_option
@click.pass_context
def subcommand(context: click.Context, *, sink: str | None, as_json: bool, path: str | None) -> None:
    """Send a test to the alert sink SINK (see moetunectl alerts list), or to all, whatever their filters say.

    Exit codes: 1 one failed, or there is none.
    """
    import msgspec

    from moetuned.cli.alerts_view import NONE, test_line
    from moetuned.cli.terminal import forgive_terminal

    client = client_at(path)
    answer = client.test_alerts(sink)
    forgive_terminal()
    if not answer.sinks:
        click.echo(NONE, err=True)
        context.exit(1)
    failed = False
    for view, is_done in _wait(client, answer.event_id, answer.sinks):
        tested = view.tested if is_done else None
        failed |= tested is None or not tested.ok
        if as_json:
            click.echo(msgspec.json.encode({"sink": view.name, "kind": view.kind, "result": tested}).decode())
        else:
            click.echo(test_line(view, tested, max(map(len, answer.sinks))))
    context.exit(1 if failed else 0)


def _wait(client: Client, event_id: str, names: tuple[str, ...]) -> list[tuple[AlertSinkView, bool]]:
    """Each sink once its test is done, or as it is when that took too long."""
    import time

    began = time.monotonic()
    while True:
        views = [view for view in client.alerts().sinks if view.name in names]
        done = [view.tested is not None and view.tested.event_id == event_id for view in views]
        # It waits for the delivery that is on its way, too.
        longest = 2 * max((view.timeout_seconds for view in views), default=0.0) + _EXTRA_SECONDS
        if all(done) or time.monotonic() - began > longest:
            return list(zip(views, done, strict=True))
        time.sleep(_POLL_SECONDS)
