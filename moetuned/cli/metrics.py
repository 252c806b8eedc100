"""moetunectl metrics: what /metrics says, for scripts and for machines that scrape nothing."""

from __future__ import annotations

import os
import sys

import click

from moetuned.cli.socket_option import socket_option

_SHOWN = bytes(ord("?") if number in (*range(9), *range(11, 32), 127) else number for number in range(256))


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl metrics\n  moetunectl metrics | grep tokens_per_second\n  moetunectl metrics --openmetrics",
)
@click.option(
    "--openmetrics", is_flag=True, help="In OpenMetrics, with units, instead of the text format of Prometheus."
)
@socket_option
def command(*, openmetrics: bool, path: str | None) -> None:
    """Print the daemon's metrics, as Prometheus scrapes them."""
    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket

    told = Client(path or find_socket(os.environ)).metrics(openmetrics=openmetrics)
    # A path may hold what a terminal takes for a command.
    click.echo(told.translate(_SHOWN) if sys.stdout.isatty() else told, nl=False)
