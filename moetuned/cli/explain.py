"""moetunectl explain: why each verdict is what it is now, rule by rule, or why it was at a second of a trace."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from moetuned.schema.explanation import Explanations


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl explain\n  moetunectl explain glm --json | jq '.backends[].axes[].checks'\n"
    "  moetunectl explain --trace thrash.jsonl.gz --at 75",
)
@click.argument("backend", metavar="BACKEND", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
@click.option("--trace", metavar="FILE", default=None, help="Explain a second of a recording instead; needs no daemon.")
@click.option(
    "--at",
    "at_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=None,
    help="Which second of the recording, from its start. [its last one]",
)
@click.option(
    "--socket",
    "path",
    metavar="PATH",
    default=None,
    help="The daemon's socket. [/run/moetuned/api.sock, or that of your own daemon]",
)
def command(
    *, backend: str | None, as_json: bool, trace: str | None, at_seconds: float | None, path: str | None
) -> None:
    """Say why the verdict of each BACKEND is what it is: every signal a rule looks at, its limit and how long it has held.

    What is unknown is named with the source that says nothing, and what would change the verdict is said.
    """
    if trace is None and at_seconds is not None:
        raise click.UsageError("--at is a second of a recording; give it with --trace FILE.")
    found = _of_daemon(backend, path) if trace is None else _of_trace(trace, at_seconds, backend)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found).decode())
        return
    from moetuned.cli.explain_view import render
    from moetuned.cli.status import wants_colour

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    width = min(shutil.get_terminal_size().columns, 120)
    click.echo(render(found, width, wants_colour()), nl=False, color=True if wants_colour() else None)


def _of_daemon(backend: str | None, path: str | None) -> Explanations:
    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket

    return Client(path or find_socket(os.environ)).explain(backend)


def _of_trace(trace: str, at_seconds: float | None, backend: str | None) -> Explanations:
    from moetuned.cli.explain_trace import explain_trace
    from moetuned.state.trace import TraceError

    try:
        found = explain_trace(trace, at_seconds)
    except TraceError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        if isinstance(error, PermissionError):
            raise
        raise click.UsageError(f"{trace}: {error.strerror}") from error
    names = [one.backend for one in found.backends]
    if backend is not None and backend not in names:
        raise click.UsageError(f"{trace} is a recording of {', '.join(names)}, not of {backend}.")
    return found
