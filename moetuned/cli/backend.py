"""`moetunectl backend`: what is done with one backend. A subcommand is a file `cli/backend_<name>.py` with an object `subcommand`."""

from __future__ import annotations

import importlib
import os
import pkgutil

import click

_PREFIX = "backend_"


class _Files(click.Group):
    """A group whose commands are those files; only that of the command which runs is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in _names() if self.get_command(ctx, name) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _names():
            return None
        module = importlib.import_module(f"moetuned.cli.{_PREFIX}{cmd_name.replace('-', '_')}")
        found = getattr(module, "subcommand", None)
        return found if isinstance(found, click.Command) else None


def _names() -> list[str]:
    modules = (module.name for module in pkgutil.iter_modules([os.path.dirname(__file__)]))
    return sorted(name.removeprefix(_PREFIX).replace("_", "-") for name in modules if name.startswith(_PREFIX))


@click.group(
    name="backend",
    cls=_Files,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl backend list\n  moetunectl backend show glm\n  sudo moetunectl backend restart glm --context 8192\n  moetunectl backend adopt llama.service",
)
def command() -> None:
    """See the backends; restart, pause or resume one; adopt one that a unit of systemd starts."""
