"""A group of commands that are files beside it: `cli/<prefix>_<name>.py` with an object `subcommand`."""

from __future__ import annotations

import importlib
import os
import pkgutil

import click


class SubcommandFiles(click.Group):
    """A group whose commands are the files that begin with its name and `_`; only that of the command which runs is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, sorted."""
        return [name for name in self._names() if self.get_command(ctx, name) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, None where there is none."""
        if cmd_name not in self._names():
            return None
        module = importlib.import_module(f"moetuned.cli.{self.name}_{cmd_name.replace('-', '_')}")
        found = getattr(module, "subcommand", None)
        return found if isinstance(found, click.Command) else None

    def _names(self) -> list[str]:
        prefix = f"{self.name}_"
        modules = (module.name for module in pkgutil.iter_modules([os.path.dirname(__file__)]))
        return sorted(name.removeprefix(prefix).replace("_", "-") for name in modules if name.startswith(prefix))
