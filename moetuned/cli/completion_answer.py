"""What a shell's completion script is answered: the words that may follow, from a table, so that a TAB imports no command.

The script puts the command line up to the cursor into `VARIABLE` and starts moetunectl. The answer is one line each: `plain`, a word
and what it is for, or `file` or `dir` where the shell shall complete names of files; separated by tabs. `moetuned` is answered for, too.
The table is made by `make docs` from the commands themselves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from moetuned.cli.completion_values import backend_names, unit_names

VARIABLE = "_MOETUNECTL_LINE"
TABLE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", "completion.json")
_END = "\x1f"
_PATHS: Mapping[str, bool] = {"file": True, "directory": False}
_ASKED: Mapping[str, Callable[[click.Context], list[str]]] = {"backend": backend_names, "unit": unit_names}

Table = Mapping[str, Any]


def print_answer(line: str) -> None:
    """Write the answer for a command line that ends at the cursor."""
    with open(TABLE, encoding="utf-8") as file:
        table = json.load(file)
    text = "".join(f"{row}\n" for row in answer(line, table))
    click.echo(text.encode(errors="replace"), nl=False)


def answer(line: str, table: Table) -> list[str]:
    """Lines of the answer; none where nothing is known to follow."""
    words, incomplete = split_line(line)
    program = os.path.basename(words[0]) if words else ""
    program = program if program in table["programs"] else "moetunectl"
    command = _command(program, table["programs"][program], table["values"])
    items = ShellComplete(command, {}, program, VARIABLE).get_completions(words[1:], incomplete)
    return [_row(item) for item in items]


def split_line(line: str) -> tuple[list[str], str]:
    """The words before the one at the cursor, without their quotes, and that one as far as it is typed."""
    *words, last = split_arg_string(line + _END)
    return words, last.removesuffix(_END)


def _row(item: CompletionItem[Any]) -> str:
    if item.type in ("file", "dir"):
        return str(item.type)
    return f"plain\t{item.value}\t{' '.join((item.help or '').split())}".rstrip()


def _command(name: str, entry: Table, values: Table) -> click.Command:
    """A command of click that only knows what it is called and what it takes."""
    about: dict[str, Any] = {
        "params": [_parameter(each, values) for each in entry.get("parameters", ())],
        "short_help": entry["about"],
        "context_settings": {"help_option_names": ["-h", "--help"]},
    }
    if "commands" not in entry:
        return click.Command(name, **about)
    below = {each: _command(each, its, values) for each, its in entry["commands"].items()}
    return click.Group(name, below, **about)


def _parameter(entry: Table, values: Table) -> click.Parameter:
    names: list[str] = entry["names"]
    kind: list[str] | str | None = entry.get("values")
    about: dict[str, Any] = {}
    if isinstance(kind, list):
        about["type"] = click.Choice(kind)
    elif kind is not None and kind in _PATHS:
        about["type"] = click.Path(file_okay=_PATHS[kind])
    elif kind is not None:
        about["shell_complete"] = partial(_begun, _ASKED.get(kind) or (lambda _: values[kind]))
    if not names[0].startswith("-"):
        return click.Argument(names, **about)
    return click.Option(names, is_flag=entry.get("flag", False), help=entry.get("about"), **about)


def _begun(
    names: Callable[[click.Context], list[str]], context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    return [name for name in names(context) if name.startswith(incomplete)]
