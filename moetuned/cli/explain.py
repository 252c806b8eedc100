"""moetunectl explain: why each verdict is what it is now, rule by rule, or why it was at a second of a trace."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from moetuned.cli.socket_option import socket_option

if TYPE_CHECKING:
    from moetuned.schema.explanation import Explanations
    from moetuned.state.trace import TraceError


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl explain\n  moetunectl explain glm --json | jq '.backends[].axes[].checks'\n"
    "  moetunectl explain --trace thrash.jsonl.gz --at 75",
)
@click.argument("backend", required=False)
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
    "--config",
    metavar="FILE",
    help="With --trace: use the memory limits of this config. [the defaults, whatever this machine has]",
)
@socket_option
def command(
    *,
    backend: str | None,
    as_json: bool,
    trace: str | None,
    at_seconds: float | None,
    config: str | None,
    path: str | None,
) -> None:
    """Say why the verdict of each BACKEND is what it is: every signal a rule looks at, its limit and how long it has held.

    What is unknown is named with the source that says nothing, and what would change the verdict is said.
    """
    if trace is None and at_seconds is not None:
        raise click.UsageError("--at is a second of a recording; give it with --trace FILE.")
    if trace is None and config is not None:
        raise click.UsageError("--config is for a recording, with --trace FILE; a daemon is asked with its own.")
    if trace is None:
        found, fault = _of_daemon(backend, path), None
    else:
        found, fault = _of_trace(trace, at_seconds, backend, config)
    _show(found, as_json=as_json)
    if fault is not None:
        sys.stdout.flush()  # what came before the fault comes before its sentence
        _fail(f"this is its last second that can be read: {fault}")


def _show(found: Explanations, *, as_json: bool) -> None:
    from moetuned.cli.explain_view import render
    from moetuned.cli.terminal import tell

    tell(found, render, as_json=as_json)


def _of_daemon(backend: str | None, path: str | None) -> Explanations:
    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket

    return Client(path or find_socket(os.environ)).explain(backend)


def _of_trace(
    trace: str, at_seconds: float | None, backend: str | None, config: str | None
) -> tuple[Explanations, TraceError | None]:
    from moetuned.cli.explain_trace import explain_trace
    from moetuned.cli.replay import settings_of_config
    from moetuned.state.trace import TraceError

    settings = settings_of_config(config)
    try:
        found, fault = explain_trace(trace, at_seconds, settings)
    except TraceError as error:
        _fail(str(error))
    except OSError as error:
        if isinstance(error, PermissionError):
            raise
        _fail(f"{trace}: {error.strerror}")
    names = [one.backend for one in found.backends]
    if backend is not None and backend not in names:
        _fail(f"{trace} is a recording of {', '.join(names)}, not of {backend}")
    return found, fault


def _fail(sentence: str) -> NoReturn:
    from moetuned.cli.model_command import EXIT_USAGE, fail

    fail(sentence, EXIT_USAGE)
