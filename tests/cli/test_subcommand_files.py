from __future__ import annotations

import click

from moetuned.cli.subcommand_files import SubcommandFiles


def test_files_with_a_subcommand_are_its_commands() -> None:
    group = SubcommandFiles(name="backend")
    context = click.Context(group)
    names = group.list_commands(context)
    assert names == sorted(names)
    assert {"list", "show", "restart"} <= set(names)
    assert "view" not in names
    assert "table" not in names, "a file without one"
    assert group.get_command(context, "../main") is None
    listed = group.get_command(context, "list")
    assert listed is not None
    assert listed.help is not None
