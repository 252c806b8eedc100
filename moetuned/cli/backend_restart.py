"""`moetunectl backend restart`: end a backend and start it again, with another context if wanted."""

from __future__ import annotations

import click

from moetuned.cli.backend_client import (
    EXIT_INTERRUPTED,
    EXIT_NO,
    EXIT_REFUSED,
    SETTINGS,
    ask,
    backend_named,
    client_at,
    fail,
    name_argument,
    on_a_terminal,
    say,
)
from moetuned.cli.socket_option import socket_option


@click.command(
    context_settings=SETTINGS,
    epilog="Examples:\n\n\b\n  sudo moetunectl backend restart glm\n  sudo moetunectl backend restart glm --context 8192\n"
    "  sudo moetunectl backend restart glm --now --yes",
)
@name_argument
@click.option(
    "--context",
    type=click.IntRange(256, 1 << 24),
    metavar="TOKENS",
    default=None,
    help="Context length from then on, until relief or the config wants another one. [as it is]",
)
@click.option("--now", is_flag=True, help="Do not wait for the requests that are being answered; they are cut off.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@socket_option
def subcommand(*, name: str, context: int | None, now: bool, yes: bool, path: str | None) -> None:
    """End BACKEND and start it again, and wait until it is healthy.

    The whole model is read again. Requests that are being answered are waited for, for a minute at most. It counts for neither
    cool-down nor budget of relief, and also starts one that failed so often that it was left stopped. Ctrl-C only ends the waiting.
    """
    from moetuned.cli.restart_progress import deadline_seconds, follow, forecast

    client = client_at(path)
    size = backend_named(client.status(), name).model_bytes
    wanted = {"backend": name, "do": "restart", "context": context, "now": now}
    answer = ask(client, **wanted, dry_run=True)
    for sentence in forecast(answer):
        say(sentence)
    if not yes and on_a_terminal() and not click.confirm(f"Restart {name}?", err=True):
        fail("nothing was restarted", EXIT_REFUSED)
    answer = ask(client, **wanted)
    try:
        outcome = follow(client, answer, deadline_seconds(answer, size))
    except KeyboardInterrupt:
        fail(f"the restart of {name} goes on; moetunectl backend show {name} says how far it is", EXIT_INTERRUPTED)
    if not outcome.well:
        fail(outcome.sentence, EXIT_NO)
    say(outcome.sentence)
