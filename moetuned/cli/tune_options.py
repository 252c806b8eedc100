"""What the subcommands of `moetunectl tune` share: their options, the config and the journal they mean, how they print and fail."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from moetuned import tunables
from moetuned.decide.persist import OWN_FILES
from moetuned.host.block_devices import device_number
from moetuned.host.config_files import DEFAULT_PATH, LoadedConfig, load_files
from moetuned.host.durable_file import read_private
from moetuned.host.fs import HostFS, RealFS
from moetuned.host.tuning_targets import asks_of_cgroup, find_targets, model_target
from moetuned.parse.config_backend_check import CGROUP_KEYS
from moetuned.parse.config_check import check
from moetuned.parse.config_problem import ConfigError, any_of
from moetuned.parse.config_text import FurtherCheck
from moetuned.schema.config import Config, Profile
from moetuned.schema.swap import SwapStep
from moetuned.schema.tunable import ModelTarget, PlannedStep, Targets
from moetuned.state import borrowed_setting, tuning
from moetuned.state.borrowed_setting import Borrowed
from moetuned.state.undo_journal import Held, JournalContents, JournalError, default_path, read_boot_id, read_journal

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_REFUSED = 4

_DAEMON_SECONDS = 2.0
_JOURNAL_START = b'{"record":'

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
        click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs."),
        click.option(
            "--root",
            metavar="DIR",
            default="/",
            type=click.Path(exists=True, file_okay=False),
            help="Look at a tree of files instead of /.",
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
        click.option(
            "--config", metavar="FILE", type=click.Path(), help=f"Config file. [{DEFAULT_PATH} and conf.d beside it]"
        ),
        click.option(
            "--profile",
            metavar="PROFILE",
            type=click.Choice([profile.value for profile in Profile]),
            help=f"{any_of(Profile)}, instead of the config's profile.",
        ),
    ):
        function = option(function)
    return function


def options_of(values: Mapping[str, Any]) -> Options:
    """The options as given, with the journal's path worked out."""
    root = os.path.abspath(values["root"])
    path = values["journal"]
    if path is not None:
        _check_journal(os.path.abspath(path))
    else:
        path = default_path(os.environ.get("MOETUNED_STATE_DIR")) if root == "/" else root + default_path(None)
    return Options(values["as_json"], root, os.path.abspath(path), values.get("config"), values.get("profile"))


def _check_journal(path: str) -> None:
    """Raises click.BadParameter for a path in a directory that is not the journal's own.

    Everything beside it would be taken for moetuned's, and measuring makes a directory there.
    """
    directory = os.path.dirname(path)
    try:
        status = os.stat(directory)
    except OSError:  # not there, or not ours to look at: whoever opens the journal says so
        return
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        hint = f"{directory} is no directory of the journal's own: others may use it, too; name one of mode 0700"
        raise click.BadParameter(hint, param_hint="--journal")
    try:
        start = read_private(path, 8 << 20)[: len(_JOURNAL_START)]
    except OSError:
        return
    if start and not _JOURNAL_START.startswith(start):
        raise click.BadParameter(f"{path} is no undo journal", param_hint="--journal")


def read_config(options: Options) -> Config:
    """The config that the options mean, with `--profile` put in. Raises ConfigError."""
    return _loaded(options).config


def _loaded(options: Options, further: Sequence[FurtherCheck] = ()) -> LoadedConfig:
    default = DEFAULT_PATH if options.root == "/" else options.root + DEFAULT_PATH
    loaded = load_files(options.config, tunables.known_sysctls(), default, further=further)
    if options.profile is None:
        return loaded
    tuning = msgspec.structs.replace(loaded.config.tuning, profile=Profile(options.profile))
    return msgspec.structs.replace(loaded, config=msgspec.structs.replace(loaded.config, tuning=tuning))


def config_or_fail(options: Options) -> Config:
    """As `read_config`; ends the program with the problems and exit code 2, those of values that the kernel refuses too."""
    return checked_config(options)[0]


def checked_config(options: Options) -> tuple[Config, tuple[str, ...]]:
    """As `config_or_fail`, with what looks like a mistake in what is to be set, each a sentence with its file and line."""
    try:
        loaded = _loaded(options, (tunables.check_tuning,))
    except ConfigError as error:
        fail(str(error), EXIT_USAGE)
    config = loaded.config
    # Another profile than the config's own: what is of no use with that one may be of use with this one.
    relevant = loaded.warnings if options.profile is None else (*check(config), *tunables.check_tuning(config))
    return config, tuple(str(each) for each in relevant if _is_of_tuning(each.path) and each.severity == "warning")


def _is_of_tuning(path: str) -> bool:
    return path.startswith("tuning") or path.rpartition(".")[2] in CGROUP_KEYS


def targets_of(options: Options, config: Config) -> Targets:
    """The models and cgroups that settings are found by, under the root that is looked at."""
    if options.root == "/":
        return find_targets(config, _running_cgroups(config))
    return find_targets(config, slice_of=lambda path: _inside(options.root, path))


def _running_cgroups(config: Config) -> dict[str, str]:
    """The cgroups of backends that run, by name, from the daemon; only it knows them. Empty where none is asked for, or none answers."""
    if not any(map(asks_of_cgroup, config.backends)):
        return {}
    from moetuned.api.client import Client
    from moetuned.api.errors import DaemonError
    from moetuned.api.socket_path import find_socket

    try:
        found = Client(find_socket(os.environ), _DAEMON_SECONDS).status()
    except DaemonError:
        return {}
    return {one.name: one.cgroup for one in found.backends if one.cgroup is not None}


def _inside(root: str, path: str) -> ModelTarget:
    return msgspec.structs.replace(model_target(root + path), path=path)


def device_of(options: Options) -> Callable[[str], tuple[int, int]]:
    """Device numbers of files as the machine whose root is looked at names them."""
    return device_number if options.root == "/" else lambda path: device_number(options.root + path)


def planned_steps(
    options: Options, config: Config, held: Mapping[str, Held], swap: Sequence[SwapStep] = ()
) -> tuple[PlannedStep, ...]:
    """What applying the config's tuning would do once the planned `swap` is made; ends the program where it asks for what cannot be."""
    fs = RealFS(options.root)
    targets = msgspec.structs.replace(
        targets_of(options, config), swap=tuple(swap), originals=tuning.standing_originals(fs, held)
    )
    steps, problems = tunables.plan_tuning(
        fs,
        config.tuning,
        targets,
        device_of(options),
        {name: entry.original for name, entry in held.items()},
    )
    if problems:
        fail("\n".join(problems), EXIT_USAGE)
    return steps


def real_fs(options: Options) -> HostFS:
    """The machine, or the tree, that is looked at."""
    return RealFS(options.root)


def persisted(options: Options) -> tuple[str, ...]:
    """A note on each file of `tune persist` that is there: it sets values at each boot whatever the config says."""
    fs = RealFS(options.root)
    there = [path for path in OWN_FILES if fs.exists(path)]
    return tuple(f"{path} sets values at each boot; `moetunectl tune unpersist` takes it away" for path in there)


def borrowed_here(options: Options) -> tuple[Borrowed, tuple[str, ...]]:
    """What a measurement has borrowed, or left, and notes; that it cannot be seen is a note. Changes nothing."""
    fs = RealFS(options.root)
    try:
        return borrowed_setting.look(fs, options.journal, read_boot_id(fs)), ()
    except JournalError as error:
        known = os.path.exists(borrowed_setting.journal_path(options.journal))
        return Borrowed(), (str(error),) if known else ()


def look(options: Options) -> tuple[JournalContents, tuple[str, ...]]:
    """What the journal says, without taking it, and notes; that it cannot be read is a note."""
    try:
        contents = read_journal(options.journal, read_boot_id(RealFS(options.root)))
    except JournalError as error:
        return JournalContents(), (f"{error}; originals are not known here",)
    return contents, (*contents.notes, *contents.problems)


def require_root(options: Options) -> None:
    """Ends the program with exit code 4 where the machine itself is meant and this is not root."""
    if options.root == "/" and os.geteuid() != 0:
        fail("changing kernel settings needs root; run this with sudo", EXIT_REFUSED)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[Sequence[str]] = ()) -> None:
    """Columns as wide as their widest cell, the last as long as it is; `below` are wrapped paragraphs under each row.

    On a terminal where a row does not fit, its last cell stands below it, too.
    """
    if not rows:
        return
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header) - 1)]
    for number, row in enumerate((header, *rows)):
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        line = "  ".join([*cells, row[-1]]).rstrip()
        if number and sys.stdout.isatty() and len(line) > shutil.get_terminal_size().columns:
            click.echo("  ".join(cells).rstrip())
            print_wrapped(row[-1])
        else:
            click.echo(line)
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
