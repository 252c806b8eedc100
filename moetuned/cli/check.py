"""moetunectl check: one line and an exit code for Nagios, Icinga, a container's health check or cron."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from moetuned.api.errors import DaemonError, DaemonUnreachable
from moetuned.cli.socket_option import socket_option

if TYPE_CHECKING:
    from moetuned.decide.nagios import CheckAnswer

UNKNOWN = 3


class _Plugin(click.Command):
    """Wrong usage is "unknown" to who runs a plugin; click's own code for it would be "critical"."""

    def make_context(self, *arguments: Any, **keys: Any) -> click.Context:
        """See `click.Command`."""
        try:
            return super().make_context(*arguments, **keys)
        except click.UsageError as error:
            click.echo(f"MOETUNED UNKNOWN - {error.format_message()}")
            raise click.exceptions.Exit(UNKNOWN) from error


@click.command(
    cls=_Plugin,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl check\n  moetunectl check --backend glm\n  moetunectl check --json | jq -r .line",
)
@click.option("--backend", "name", metavar="BACKEND", help="Only this backend. [all of them, and the kernel settings]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; the exit code is the same.")
@socket_option
def command(*, name: str | None, as_json: bool, path: str | None) -> None:
    """Say in one line how things are, for monitoring.

    Exits as a Nagios plugin does: 0 all is well; 1 warning (memory nears its limit, a model was pushed out of memory, it loads, a setting was
    changed); 2 critical (thrashing, hung, down, memory full); 3 unknown (no daemon, it has not looked for long, or no such backend).
    """
    from moetuned.cli.terminal import forgive_terminal

    forgive_terminal()
    found = _checked(name, path)
    text = found.line
    if as_json:
        import msgspec

        text = msgspec.json.encode(found).decode()
    try:
        click.echo(text)
    except OSError:  # the code is the answer, and holds where nobody reads the words or they cannot be written
        from moetuned.cli.main import drop_output

        drop_output()
    sys.exit(found.code)


def _checked(name: str | None, path: str | None) -> CheckAnswer:
    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket
    from moetuned.decide.headline import headlines, worst
    from moetuned.decide.nagios import CheckAnswer, answer, check_line
    from moetuned.schema.headline import Severity

    try:
        snapshot = Client(path or find_socket(os.environ)).status()
    except DaemonError as error:
        return CheckAnswer(UNKNOWN, Severity.UNKNOWN, (), check_line(Severity.UNKNOWN, _why(error)))
    found = headlines(snapshot, time.time())
    views = snapshot.backends
    if name is not None:
        views = tuple(view for view in views if view.name == name)
        if not views:
            known = ", ".join(view.name for view in snapshot.backends) or "none"
            sentence = f"moetuned knows no backend {name!r}; it knows: {known}."
            return CheckAnswer(UNKNOWN, Severity.UNKNOWN, (), check_line(Severity.UNKNOWN, sentence))
        found = tuple(one for one in found if one.backend == name or one.is_stale)
    return answer(worst(found), found, views)


def _why(error: DaemonError) -> str:
    if isinstance(error, DaemonUnreachable):
        from moetuned.cli.daemon_absence import explained

        return explained(error)
    return str(error)
