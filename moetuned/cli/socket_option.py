"""The option `--socket`, which every command has that asks the daemon."""

from __future__ import annotations

import click

socket_option = click.option(
    "--socket",
    "path",
    metavar="PATH",
    default=None,
    help="The daemon's socket. [/run/moetuned/api.sock, or that of your own daemon]",
)
