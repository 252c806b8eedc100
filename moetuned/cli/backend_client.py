"""What the subcommands of `moetunectl backend` share: options, the daemon to ask, and the backend that is named."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import click

from moetuned.cli.text_width import printable

if TYPE_CHECKING:
    from moetuned.api.client import Client
    from moetuned.schema.snapshot import BackendView, Snapshot
    from moetuned.schema.supervision import BackendAnswer

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
EXIT_NO = 1
EXIT_REFUSED = 4
EXIT_INTERRUPTED = 130

json_option = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")


name_argument: Callable[[Any], Any] = click.argument("name", metavar="BACKEND")


def client_at(path: str | None) -> Client:
    """The daemon at this socket, or at the usual one."""
    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket

    return Client(path or find_socket(os.environ))


def backend_named(snapshot: Snapshot, name: str) -> BackendView:
    """The backend of this name; ends the program with 1 and the names that there are."""
    found = next((one for one in snapshot.backends if one.name == name), None)
    if found is None:
        known = ", ".join(one.name for one in snapshot.backends) or "none"
        fail(f"there is no backend {name!r}; there are: {known}", EXIT_NO)
    return found


def ask(client: Client, **wanted: object) -> BackendAnswer:
    """POST /v1/backend. Raises DaemonError."""
    import msgspec

    from moetuned.schema.supervision import BackendAnswer

    return msgspec.convert(client.post("/v1/backend", wanted), BackendAnswer)


def say(text: str) -> None:
    """A sentence of the result, wrapped as wide as the terminal."""
    import textwrap

    for line in textwrap.wrap(printable(text), width(), break_on_hyphens=False) or [""]:
        click.echo(line)


def width() -> int:
    """Columns to write for people."""
    import shutil

    return max(40, min(shutil.get_terminal_size().columns, 120))


def on_a_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def fail(sentence: str, code: int) -> NoReturn:
    """End the program with one sentence."""
    click.echo(f"moetunectl: {printable(sentence)}", err=True)
    sys.exit(code)
