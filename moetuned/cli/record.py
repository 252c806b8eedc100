"""`moetunectl record`: a running backend's seconds into a file that can be replayed anywhere and shown to anybody."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from moetuned.cli.model_command import EXIT_NO, EXIT_REFUSED, EXIT_USAGE, SETTINGS, fail, size
from moetuned.cli.socket_option import socket_option
from moetuned.schema.units import parse_duration

if TYPE_CHECKING:
    from moetuned.cli.record_run import Pause
    from moetuned.schema.snapshot import Snapshot
    from moetuned.state.trace_writer import TraceWriter

LONGEST_INTERVAL_SECONDS = 4.0
SHORTEST_INTERVAL_SECONDS = 0.2
"""As for watch.interval of the config."""
_LARGEST_ID = 2**32 - 2
"""Of users and groups; the number after it means none (chown(2))."""


def _duration(_context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if option.name == "interval" and not SHORTEST_INTERVAL_SECONDS <= seconds <= LONGEST_INTERVAL_SECONDS:
        raise click.BadParameter("between 200ms and 4s")
    if seconds == 0:
        raise click.BadParameter("0 is too little")
    return seconds


def _out(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if not value.endswith((".jsonl", ".jsonl.gz")):
        raise click.BadParameter("its name must end in .jsonl or .jsonl.gz (compressed)")
    return value


@click.command(
    context_settings=SETTINGS,
    epilog="Examples:\n\n\b\n  sudo moetunectl record slow.jsonl.gz\n"
    "  sudo moetunectl record slow.jsonl.gz --backend glm --seconds 10m --anonymous\n"
    "  moetunectl record slow.jsonl.gz --pid 4711 --url http://127.0.0.1:8081",
)
@click.argument("out", metavar="OUT", callback=_out)
@click.option("--backend", "name", metavar="BACKEND", help="The backend of that name of the daemon, or of the config.")
@click.option(
    "--pid", metavar="PID", type=click.IntRange(min=1), help="The backend with that process. [the only one that runs]"
)
@click.option("--url", metavar="URL", help="Where it can be asked. [from its command line]")
@click.option("--model", metavar="FILE", help="Its model, any part. [from its command line]")
@click.option("--seconds", metavar="TIME", callback=_duration, help="How long, also 10m or 2h. [until Ctrl-C]")
@click.option("--interval", metavar="TIME", default="1s", callback=_duration, help="Between samples, 200ms to 4s. [1s]")
@click.option("--max-size", metavar="SIZE", default="256M", callback=size, help="Stop before OUT is larger. [256M]")
@click.option("--anonymous", is_flag=True, help="Leave out directories, and names of containers, units and backends.")
@click.option("--force", is_flag=True, help="Replace OUT if it is there.")
@socket_option
def command(**options: Any) -> None:
    """Record a running backend, second by second, into OUT (.jsonl or .jsonl.gz), e.g. for a bug report.

    Needs no daemon; as root, or as who runs the backend. What the kernel and the backend's HTTP say is kept as text, so that
    moetunectl replay judges it again; prompts, answers, keys and whatever else could be secret are left out. Stops at Ctrl-C.
    """
    from moetuned.cli.record_choice import ChoiceError, choose
    from moetuned.cli.record_run import head_of, run
    from moetuned.cli.record_view import ProgressText, summary
    from moetuned.host.clock import RealClock
    from moetuned.host.recording import Recording

    if options["name"] is not None and options["pid"] is not None:
        fail("say --backend or --pid, not both", EXIT_USAGE)
    if os.path.lexists(options["out"]) and not options["force"]:
        fail(f"{options['out']} is there already; say --force to replace it", EXIT_USAGE)
    try:
        choice = choose(
            lambda: _ask_daemon(options["path"]), options["name"], options["pid"], options["url"], options["model"]
        )
    except ChoiceError as error:
        fail(str(error), EXIT_REFUSED if error.refused else EXIT_USAGE)
    subject, interval = choice.subject, options["interval"]
    head = head_of(choice, interval, anonymous=options["anonymous"])
    clock, line = RealClock(), ProgressText(sys.stderr)
    writer = _open(options["out"], options["max_size"], overwrite=options["force"])
    recording = Recording(subject, clock, interval)
    try:
        with stopped_by_signals() as pause:
            ended = run(head, recording, writer, clock, pause, line.draw, interval, options["seconds"])
    finally:
        line.clear()
        recording.close()
    if ended.last is None:
        writer.discard()
        fail(f"{writer.path}: nothing was recorded: {ended.why}", EXIT_NO)
    for text in summary(writer, subject, head, ended, recording.residency_unknown):
        click.echo(text)
    sys.exit(EXIT_NO if ended.failed else 0)


def _ask_daemon(path: str | None) -> Snapshot:
    from moetuned.api.client import Client
    from moetuned.api.socket_path import find_socket

    return Client(path or find_socket(os.environ)).status()


def _open(path: str, limit_bytes: int, *, overwrite: bool) -> TraceWriter:
    from moetuned.state.trace_writer import TraceWriter

    try:
        return TraceWriter(path, limit_bytes, overwrite=overwrite, owner=caller(os.environ.get))
    except OSError as error:
        refused = isinstance(error, PermissionError)
        fail(f"{path} cannot be made: {error.strerror}", EXIT_REFUSED if refused else EXIT_USAGE)


def caller(variable: Callable[[str], str | None]) -> tuple[int, int] | None:
    """User and group who said sudo: the recording is theirs to send. None without sudo."""
    user, group = variable("SUDO_UID") or "", variable("SUDO_GID") or ""
    numbers = all(
        one.isascii() and one.isdigit() and len(one) < 11 and int(one) <= _LARGEST_ID for one in (user, group)
    )
    return (int(user), int(group)) if numbers and os.geteuid() == 0 else None


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[Pause]:
    """A pause that SIGINT, SIGTERM and SIGHUP end. They interrupt nothing else: a line is written whole."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def stop(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writing, b"x")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield lambda seconds: bool(select.select([reading], [], [], max(0.0, seconds))[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)
