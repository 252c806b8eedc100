"""`moetunectl tune` beside a running daemon: the one that holds the undo journal is asked to apply and to give back."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, TypeVar

import click
import msgspec

from moetuned.api.errors import DaemonError, DaemonUnreachable
from moetuned.api.socket_path import find_socket
from moetuned.cli.tune_options import EXIT_REFUSED, Options, fail, require_root
from moetuned.cli.tune_swap import follow
from moetuned.schema.snapshot import TuneAnswer

TIMEOUT_SECONDS = 60.0
"""Each setting is flushed to the disk before it is written; a busy disk takes its time."""
HAS_READ = "the daemon did this with the config that it has read; after an edit, reload it: systemctl reload moetuned"

Do = Literal["apply", "rollback"]
_Command = TypeVar("_Command", bound=Callable[..., None])


def socket(function: _Command) -> _Command:
    """Adds `--socket` as `path`."""
    return click.option(
        "--socket",
        "path",
        metavar="PATH",
        default=None,
        help="The daemon's socket. [/run/moetuned/api.sock, or that of your own daemon]",
    )(function)


def may_write(options: Options) -> bool:
    """Whether this process may change settings itself: root may, and anybody in a tree of files."""
    return options.root != "/" or os.geteuid() == 0


def ask_holder(options: Options, do: Do, path: str | None) -> TuneAnswer:
    """What the daemon that holds the journal did when it was asked.

    Ends the program with exit code 3 where it does not answer, with 4 where it refuses, or where the journal is held and no
    daemon can be meant (a tree of files, without `--socket`).
    """
    if options.root != "/" and path is None:
        fail(
            f"another moetuned process holds {os.path.dirname(options.journal)}; if it is a daemon, name its --socket",
            EXIT_REFUSED,
        )
    try:
        return _ask(options, do, path)
    except DaemonUnreachable as error:
        fail(
            f"another process holds {os.path.dirname(options.journal)} and cannot be asked to {do}: {error} "
            "If it is no daemon, wait until it has ended.",
            error.exit_code,
        )
    except DaemonError as error:
        fail(str(error), EXIT_REFUSED)


def ask_instead_of_root(options: Options, do: Do, path: str | None) -> TuneAnswer:
    """What a daemon did for somebody who is not root: members of its socket's group may ask. Ends the program where none does."""
    try:
        return _ask(options, do, path)
    except DaemonUnreachable:
        require_root(options)
        raise
    except DaemonError as error:
        fail(str(error), EXIT_REFUSED)


def _ask(options: Options, do: Do, path: str | None) -> TuneAnswer:
    """Raises DaemonError, DaemonUnreachable."""
    from moetuned.api.client import Client

    asked = {"do": do, "journal": options.journal, "profile": options.profile}
    if options.config is not None:
        asked["config"] = os.path.abspath(options.config)
    client = Client(path or find_socket(os.environ), TIMEOUT_SECONDS)
    given = client.post("/v1/tune", {key: value for key, value in asked.items() if value is not None})
    try:
        answer = msgspec.convert(given, TuneAnswer)
    except msgspec.ValidationError as error:
        raise DaemonError(f"The daemon's answer is none of this version ({error}); restart it.") from error
    answer = follow(client, answer)
    return msgspec.structs.replace(answer, notes=(*answer.notes, HAS_READ)) if do == "apply" else answer
