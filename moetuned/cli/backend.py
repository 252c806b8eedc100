"""`moetunectl backend`: a group whose subcommands are the files `cli/backend_<name>.py` with an object `command`."""

from __future__ import annotations

import importlib
import os
import pkgutil

import click

_PREFIX = "backend_"


class SubcommandFiles(click.Group):
    """Only the file of the subcommand that runs is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the subcommands, sorted."""
        return [name for name in _names() if self.get_command(ctx, name) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The subcommand of that name, None where there is none."""
        if cmd_name not in _names():
            return None
        module = importlib.import_module(f"moetuned.cli.{_PREFIX}{cmd_name.replace('-', '_')}")
        found = getattr(module, "command", None)
        return found if isinstance(found, click.Command) else None


def _names() -> list[str]:
    here = os.path.dirname(__file__)
    modules = (module.name for module in pkgutil.iter_modules([here]) if module.name.startswith(_PREFIX))
    return sorted(name.removeprefix(_PREFIX).replace("_", "-") for name in modules)


@click.command(
    cls=SubcommandFiles,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  moetunectl backend list\n  moetunectl backend show glm\n  sudo moetunectl backend restart glm --context 8192",
)
def command() -> None:
    """See the backends, and restart, pause or resume one."""
