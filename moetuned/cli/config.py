"""`moetunectl config`: print a sample, check files, show what is in force. Needs no daemon and changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import NoReturn

import click
import msgspec
import yaml

from moetuned import backends, tunables
from moetuned.host.config_files import DEFAULT_PATH, LoadedConfig, load_files, missing_places
from moetuned.host.privileged_port import unit_cannot_take
from moetuned.host.protection_room import too_much
from moetuned.parse.config_problem import ConfigError, Problem
from moetuned.parse.config_sample import sample_config
from moetuned.parse.config_values import listen_address
from moetuned.schema.config import Config

EXIT_NO = 1


@click.group(
    name="config",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl config sample > moetuned.yaml\n  moetunectl config check\n"
    "  moetunectl config check ./moetuned.yaml\n  moetunectl config show --json",
)
def command() -> None:
    """Print a sample config, check config files, or show what they say together."""


@command.command(
    help="Print the commented sample config, with every key there is.",
    epilog="Examples:\n\n\b\n  moetunectl config sample > moetuned.yaml",
)
def sample() -> None:
    """Print the sample."""
    click.echo(sample_config(), nl=False)


@command.command(
    help=f"Check FILE, or {DEFAULT_PATH} and conf.d beside it. Exits 1 when the daemon would refuse it.",
    epilog="Examples:\n\n\b\n  moetunectl config check\n  moetunectl config check ./moetuned.yaml",
)
@click.argument("file", required=False, type=click.Path())
def check(file: str | None) -> None:
    """Say every problem, or that there is none."""
    loaded = _load(file)
    names = ", ".join(loaded.files) or f"no config file ({DEFAULT_PATH} is missing): the defaults, which change nothing"
    click.echo(f"ok: {names}")


@command.command(
    help="Show the whole config: all files together, with defaults. FILE instead of the config of this machine.",
    epilog="Examples:\n\n\b\n  moetunectl config show\n  moetunectl config show --json | jq .relief",
)
@click.argument("file", required=False, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of YAML, for programs.")
def show(file: str | None, as_json: bool) -> None:
    """Print the config as data."""
    config = _load(file).config
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(config), indent=2).decode())
    else:
        click.echo(
            yaml.safe_dump(msgspec.to_builtins(config), sort_keys=False, allow_unicode=True, width=120), nl=False
        )


def _load(file: str | None) -> LoadedConfig:
    try:
        loaded = load_files(
            file,
            tunables.known_sysctls(),
            known_kinds=backends.names(),
            further=(tunables.check_tuning, missing_places, too_much, _refused_port),
        )
    except ConfigError as error:
        _refuse(error)
    _warn(loaded.warnings)
    return loaded


def _refused_port(config: Config) -> Iterator[Problem]:
    """A warning where the daemon's unit may not listen as it is told: by hand it may."""
    try:
        port = 0 if config.api.listen is False else listen_address(config.api.listen)[1]
    except ValueError:  # an error of its own
        return
    why = unit_cannot_take(port)
    if why is not None:
        yield Problem("", "api.listen", repr(config.api.listen), why, severity="warning")


def _warn(warnings: Iterable[Problem]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def _refuse(error: ConfigError) -> NoReturn:
    click.echo(str(error), err=True)
    _warn(error.warnings)
    count = len(error.problems)
    click.echo(f"{count} problem{'' if count == 1 else 's'}; moetuned would not start with this.", err=True)
    sys.exit(EXIT_NO)
