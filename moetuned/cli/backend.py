"""`moetunectl backend`: what is done with one backend."""

from __future__ import annotations

import click

from moetuned.cli.subcommand_files import SubcommandFiles


@click.group(
    name="backend",
    cls=SubcommandFiles,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl backend list\n  moetunectl backend show glm\n  sudo moetunectl backend restart glm --context 8192\n  moetunectl backend adopt llama.service",
)
def command() -> None:
    """See the backends; restart, pause or resume one; adopt one that a unit of systemd starts."""
