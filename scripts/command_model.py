"""The click commands as data: what the reference page, the man pages and the table of the shells' completion are made from."""  # noqa: INP001

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from moetuned import tunables
from moetuned.schema.event import EventName

VALUES = {
    "BACKEND": "backend",
    "DIR": "directory",
    "DIRECTORY": "directory",
    "EVENT": "event",
    "FILE": "file",
    "KEY": "tunable",
    "MODEL": "file",
    "OUT": "file",
    "PATH": "file",
    "TRACE": "file",
    "UNIT": "unit",
}
"""Words that stand for a value in the help of commands, and what a shell completes there. Other words complete nothing."""


@dataclass(frozen=True)
class Parameter:
    """An option or an argument. `word` stands for its value in texts, "" for a flag; `choices` are all values, where they are few."""

    names: tuple[str, ...]
    is_option: bool
    word: str
    required: bool
    choices: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Command:
    """A command: the words that call it, what it says of itself, and the commands below it (`is_group`)."""

    words: str
    paragraphs: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    examples: tuple[str, ...]
    is_group: bool
    commands: tuple[Command, ...]

    @property
    def arguments(self) -> list[Parameter]:
        """In the order in which they are given."""
        return [each for each in self.parameters if not each.is_option]

    @property
    def options(self) -> list[Parameter]:
        """Without -h and --help, which every command has."""
        return [each for each in self.parameters if each.is_option]

    @property
    def summary(self) -> str:
        """One line without a full stop, as in a list of commands."""
        return first_sentence(self.paragraphs[0])

    def all(self) -> Iterator[Command]:
        """The command and all below it."""
        yield self
        for each in self.commands:
            yield from each.all()


def model_of(words: str, command: click.Command) -> Command:
    """The command that these words call, with all below it."""
    below: list[Command] = []
    if isinstance(command, click.Group):
        context = click.Context(command)
        found = ((name, command.get_command(context, name)) for name in command.list_commands(context))
        below = [model_of(f"{words} {name}", each) for name, each in found if each is not None and not each.hidden]
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    if " " not in words:  # a program's exit codes are a part of its own in every page
        text = re.sub(r"\n\nExit codes:.*", "", text, flags=re.DOTALL)
    return Command(
        words=words,
        paragraphs=tuple(" ".join(each.split()) for each in text.split("\n\n")),
        parameters=tuple(_parameter(each) for each in command.params),
        examples=tuple(line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")),
        is_group=isinstance(command, click.Group),
        commands=tuple(below),
    )


def _parameter(parameter: click.Parameter) -> Parameter:
    is_option = isinstance(parameter, click.Option)
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    choices = tuple(map(str, parameter.type.choices)) if isinstance(parameter.type, click.Choice) else ()
    own = "|".join(choices) or (parameter.type.name if is_option else parameter.name or "").upper()
    return Parameter(
        names=(*parameter.opts, *parameter.secondary_opts),
        is_option=is_option,
        word="" if is_flag else (parameter.metavar or own).strip("[]"),
        required=parameter.required,
        choices=choices,
        text=_text(parameter) if isinstance(parameter, click.Option) else "",
    )


def _text(option: click.Option) -> str:
    """The help, with the default and the range that click puts behind it."""
    notes = [f"default: {option.default}"] if option.show_default else []
    low, high = getattr(option.type, "min", None), getattr(option.type, "max", None)
    if low is not None or high is not None:
        notes.append(f"{low} or more" if high is None else f"{low} to {high}")
    return " ".join([option.help or "", *([f"[{'; '.join(notes)}]"] if notes else [])])


def first_sentence(text: str) -> str:
    """Up to its full stop, without it."""
    return re.split(r"\.(?= [A-Z]|$)", text, maxsplit=1)[0]


def completion_table(*programs: Command) -> str:
    """moetuned/data/completion.json: what a shell may complete, so that a TAB imports no command."""
    specs = [tunables.load(name).spec for name in tunables.module_names()]
    keys = {spec.name for spec in specs} | {spec.twin.name for spec in specs if spec.twin is not None}
    table = {
        "values": {"event": [each.value for each in EventName], "tunable": sorted(keys)},
        "programs": {each.words: _entry(each) for each in programs},
    }
    return json.dumps(table, indent=1) + "\n"


def _entry(command: Command) -> dict[str, Any]:
    entry: dict[str, Any] = {"about": command.summary}
    if command.parameters:
        entry["parameters"] = [_parameter_entry(each) for each in command.parameters]
    if command.is_group:
        entry["commands"] = {each.words.rpartition(" ")[2]: _entry(each) for each in command.commands}
    return entry


def _parameter_entry(parameter: Parameter) -> dict[str, Any]:
    entry: dict[str, Any] = {"names": list(parameter.names)}
    if parameter.text:
        entry["about"] = first_sentence(parameter.text.partition(" [")[0])
    if not parameter.word:
        entry["flag"] = True
    values = list(parameter.choices) or VALUES.get(parameter.word)
    if values:
        entry["values"] = values
    return entry
