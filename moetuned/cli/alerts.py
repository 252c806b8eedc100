"""`moetunectl alerts`: who is told what happens, and whether it reaches them."""

from __future__ import annotations

import click

from moetuned.cli.subcommand_files import SubcommandFiles


@click.group(
    name="alerts",
    cls=SubcommandFiles,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl alerts list\n  sudo moetunectl alerts test\n  sudo moetunectl alerts test ntfy",
)
def command() -> None:
    """See the alert sinks, and try them."""
