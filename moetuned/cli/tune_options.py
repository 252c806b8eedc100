"""What the subcommands of `moetunectl tune` share: their options, the config and the journal they mean, how they print and fail."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from moetuned import tunables
from moetuned.host.block_devices import device_number
from moetuned.host.config_files import DEFAULT_PATH, load_files
from moetuned.host.fs import RealFS
from moetuned.host.tuning_targets import find_targets, model_target
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.config import Config, Profile, Tuning
from moetuned.schema.tunable import ModelTarget, PlannedStep, Targets
from moetuned.state.undo_journal import Held, JournalError, default_path, read_boot_id, read_journal

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_REFUSED = 4

_Command = TypeVar("_Command", bound=Callable[..., None])


class Options(msgspec.Struct, frozen=True):
    """What every subcommand takes. `journal` is absolute; `root` is where the machine's files are looked for."""

    as_json: bool
    root: str
    journal: str
    config: str | None = None
    profile: str | None = None


def places(function: _Command) -> _Command:
    """Adds `--json`, `--root` and `--journal`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs."),
        click.option(
            "--root", default="/", type=click.Path(file_okay=False), help="Look at a tree of files instead of /."
        ),
        click.option(
            "--journal",
            type=click.Path(dir_okay=False),
            help="Undo journal, in a directory of its own. [undo.jsonl in $MOETUNED_STATE_DIR or /var/lib/moetuned]",
        ),
    ):
        function = option(function)
    return function


def wishes(function: _Command) -> _Command:
    """Adds `--config` and `--profile`."""
    for option in (
        click.option("--config", type=click.Path(), help=f"Config file. [{DEFAULT_PATH} and conf.d beside it]"),
        click.option(
            "--profile",
            type=click.Choice([profile.value for profile in Profile]),
            help="Instead of the config's profile.",
        ),
    ):
        function = option(function)
    return function


def options_of(values: Mapping[str, Any]) -> Options:
    """The options as given, with the journal's path worked out."""
    root = os.path.abspath(values["root"])
    path = values["journal"]
    if path is None:
        path = default_path(os.environ.get("MOETUNED_STATE_DIR")) if root == "/" else root + default_path(None)
    return Options(values["as_json"], root, os.path.abspath(path), values.get("config"), values.get("profile"))


def read_config(options: Options) -> Config:
    """The config that the options mean, with `--profile` put in. Raises ConfigError."""
    default = DEFAULT_PATH if options.root == "/" else options.root + DEFAULT_PATH
    config = load_files(options.config, tunables.known_sysctls(), default).config
    if options.profile is None:
        return config
    return msgspec.structs.replace(
        config, tuning=msgspec.structs.replace(config.tuning, profile=Profile(options.profile))
    )


def config_or_fail(options: Options) -> Config:
    """As `read_config`; ends the program with the problems and exit code 2."""
    try:
        return read_config(options)
    except ConfigError as error:
        fail(str(error), EXIT_USAGE)


def targets_of(options: Options, config: Config) -> Targets:
    """The models and cgroups that settings are found by, under the root that is looked at."""
    if options.root == "/":
        return find_targets(config)
    return find_targets(config, slice_of=lambda path: _inside(options.root, path))


def _inside(root: str, path: str) -> ModelTarget:
    return msgspec.structs.replace(model_target(root + path), path=path)


def device_of(options: Options) -> Callable[[str], tuple[int, int]]:
    """Device numbers of files as the machine whose root is looked at names them."""
    return device_number if options.root == "/" else lambda path: device_number(options.root + path)


def planned_steps(options: Options, config: Config, held: Mapping[str, Held]) -> tuple[Tuning, tuple[PlannedStep, ...]]:
    """The config's tuning and what applying it would do; ends the program when the config asks for what cannot be."""
    steps, problems = tunables.plan_tuning(
        RealFS(options.root),
        config.tuning,
        targets_of(options, config),
        device_of(options),
        {name: entry.original for name, entry in held.items()},
    )
    if problems:
        fail("\n".join(problems), EXIT_USAGE)
    return config.tuning, steps


def look(options: Options) -> tuple[dict[str, Held], tuple[str, ...]]:
    """What the journal holds, without taking it; that it cannot be read is a note."""
    try:
        contents = read_journal(options.journal, read_boot_id(RealFS(options.root)))
    except JournalError as error:
        return {}, (f"{error}; originals are not known here",)
    return contents.held, (*contents.notes, *contents.problems)


def require_root(options: Options) -> None:
    """Ends the program with exit code 4 where the machine itself is meant and this is not root."""
    if options.root == "/" and os.geteuid() != 0:
        fail("changing kernel settings needs root; run this with sudo", EXIT_REFUSED)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[Sequence[str]] = ()) -> None:
    """Columns as wide as their widest cell, the last as long as it is; `below` are wrapped paragraphs under each row."""
    if not rows:
        return
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header) - 1)]
    for number, row in enumerate((header, *rows)):
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        click.echo("  ".join([*cells, row[-1]]).rstrip())
        if number and below:
            for text in below[number - 1]:
                print_wrapped(text)


def print_wrapped(text: str) -> None:
    """A paragraph, indented, as wide as the terminal but no wider than can be read."""
    width = max(40, min(shutil.get_terminal_size().columns, 110))
    click.echo(textwrap.fill(text, width, initial_indent="    ", subsequent_indent="    "))


def print_notes(notes: Sequence[str]) -> None:
    """Notes go to standard error, so that they are no part of the JSON."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


def print_json(value: object) -> None:
    """Indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def fail(message: str, code: int) -> NoReturn:
    """One sentence to standard error and the exit code."""
    click.echo(f"moetunectl: {message}", err=True)
    sys.exit(code)
