"""moetunectl estimate: will this model run here, how fast at most, and with which flags. Needs only headers, no root, no daemon."""

from __future__ import annotations

import re
import shutil
import sys
from typing import Any, NoReturn

import click

from moetuned.schema.units import parse_bytes

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_REFUSED = 4
_MOST_CONTEXT = 1 << 24
_SOLD_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([kmgtKMGT])[bB]?(?:/s)?")


def _bytes(_context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """A size as people write it; a usage error otherwise."""
    if value is None:
        return None
    try:
        size = parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if size == 0 and option.name != "cache_ram":
        raise click.BadParameter("0 is too little")
    return size


def _rate(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Bytes a second as disks are sold: K, M, G are powers of 1000, and "/s" may follow. A usage error otherwise."""
    if value is None:
        return None
    match = _SOLD_RATE.fullmatch(value.strip())
    if match is None:
        return _bytes(context, option, value.strip().removesuffix("/s"))
    rate = int(float(match[1]) * 1000 ** (1 + "kmgt".index(match[2].lower())))
    return _bytes(context, option, str(rate))


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  moetunectl estimate glm-00001-of-00007.gguf\n"
    "  moetunectl estimate model.gguf --ram 32G --vram 12G --disk-read 3.5G --context 32768\n"
    "  curl -r 0-20000000 -L -o head.gguf URL; moetunectl estimate head.gguf\n"
    "  moetunectl estimate model.gguf --measure --json",
)
@click.argument("model", metavar="MODEL", type=click.Path(readable=False))
@click.option(
    "--ram",
    metavar="SIZE",
    callback=_bytes,
    help="Answer for a machine with this much RAM. [this one, or its container's limit]",
)
@click.option("--vram", metavar="SIZE", callback=_bytes, help="Memory of a GPU to use as well.")
@click.option(
    "--disk-read",
    metavar="RATE",
    callback=_rate,
    help="Sequential bytes a second that the disk is sold with, e.g. 3.5G (here powers of 1000).",
)
@click.option(
    "--context",
    metavar="TOKENS",
    type=click.IntRange(1, _MOST_CONTEXT),
    help="Context length in tokens. [16384, or the model's if less]",
)
@click.option(
    "--slots", metavar="N", type=click.IntRange(1, 256), default=1, show_default=True, help="Requests at the same time."
)
@click.option("--cache-type-k", metavar="TYPE", default="f16", show_default=True, help="Type of K in the KV cache.")
@click.option("--cache-type-v", metavar="TYPE", default="f16", show_default=True, help="Type of V in the KV cache.")
@click.option(
    "--cache-ram", metavar="SIZE", callback=_bytes, help="Prompt cache, e.g. 512M. [chosen to suit the memory]"
)
@click.option("--backend", type=click.Path(), help="The llama-server that will run it. [the one on PATH]")
@click.option("--measure", is_flag=True, help="Read random expert slices for a few seconds instead of assuming a disk.")
@click.option("--exact", is_flag=True, help="Also ask llama-fit-params of the backend.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
@click.option(
    "--socket",
    "socket_path",
    metavar="PATH",
    default=None,
    help="The daemon's socket. [/run/moetuned/api.sock, or that of your own daemon]",
)
def command(**values: Any) -> None:
    """Say where each GiB would go, how fast MODEL could run, and how to start it.

    MODEL is a GGUF file, any part of a split one, or only its first megabytes. Exits 1 when it does not fit.
    """
    from moetuned.cli.estimate_facts import Question, answer
    from moetuned.cli.terminal import forgive_terminal
    from moetuned.gguf.header import GgufError
    from moetuned.host.disk_measure import MeasureError
    from moetuned.host.machine import MachineError
    from moetuned.host.model_files import ModelFileError

    as_json = values.pop("as_json")
    forgive_terminal()
    try:
        found = answer(Question(**values))
    except ModelFileError as error:
        _fail(str(error), EXIT_REFUSED if error.refused else EXIT_USAGE)
    except GgufError as error:
        _fail(f"{values['model']}: {error}")
    except (MachineError, MeasureError, ValueError) as error:
        _fail(str(error))
    if as_json:
        import json

        import msgspec

        # ASCII only: a file's name may hold bytes that are no UTF-8.
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        from moetuned.cli.estimate_view import render
        from moetuned.cli.terminal import wants_colour

        width = min(shutil.get_terminal_size().columns, 120)
        click.echo(render(found, width, wants_colour()), nl=False, color=True if wants_colour() else None)
    if not found.fits:
        sys.exit(EXIT_NO)


def _fail(message: str, code: int = EXIT_USAGE) -> NoReturn:
    from moetuned.cli.verify_view import printable

    click.echo(f"moetunectl: {printable(message)}", err=True)
    sys.exit(code)
