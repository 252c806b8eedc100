"""What `moetunectl residency`, `warm` and `evict` share: reading the model, looking at it with progress, printing and failing."""

from __future__ import annotations

import json
import sys
from typing import NoReturn

import click
import msgspec

from moetuned.cli.model_residency import Look, look_at
from moetuned.cli.progress_line import Elapsed
from moetuned.cli.verify_view import printable
from moetuned.host.model_files import ModelFile, ModelFileError, read_model
from moetuned.schema.units import parse_bytes

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_REFUSED = 4
EXIT_INTERRUPTED = 130
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def size(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """A size as people write it, more than 0; a usage error otherwise."""
    if value is None:
        return None
    try:
        number = parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if number == 0:
        raise click.BadParameter("0 is too little")
    return number


def read_or_fail(path: str) -> ModelFile:
    """The model of which `path` is any part; ends the program with exit code 4 where this user may not read it, 2 where it is no use."""
    try:
        return read_model(path)
    except ModelFileError as error:
        fail(str(error), EXIT_REFUSED if error.refused else EXIT_USAGE)


def looked(model: ModelFile) -> Look:
    """As `look_at`, with a line on a terminal when it takes more than a second."""
    line = Elapsed(sys.stderr, "looking at")
    try:
        return look_at(model, line.draw)
    finally:
        line.clear()


def exit_code(look: Look) -> int:
    """0 when residency is known, 4 when this user may not know it, 1 when it cannot be known."""
    if look.unknown is None:
        return 0
    return EXIT_REFUSED if look.refused else EXIT_NO


def print_json(value: object) -> None:
    """Indented JSON. ASCII only: a file's name may hold bytes that are no UTF-8."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2))


def fail(sentence: str, code: int) -> NoReturn:
    """One sentence to standard error and the exit code."""
    click.echo(f"moetunectl: {printable(sentence)}", err=True)
    sys.exit(code)
