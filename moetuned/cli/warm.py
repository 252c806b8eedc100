"""`moetunectl warm`: bring a model into memory, by the daemon that watches its backend, or here."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from moetuned.api.errors import DaemonError, DaemonUnreachable
from moetuned.api.socket_path import find_socket
from moetuned.cli.learned_heat import known_use
from moetuned.cli.model_command import EXIT_REFUSED, EXIT_USAGE, SETTINGS, fail, looked, print_json, read_or_fail, size
from moetuned.cli.model_residency import Look, cache_notes, filesystem_of
from moetuned.cli.progress_line import Bar, Elapsed, Lines, width_of_output
from moetuned.cli.socket_option import socket_option
from moetuned.cli.warm_by_daemon import backend_with, look_after, look_of, waits_in_vain, warm_by_daemon
from moetuned.cli.warm_here import warm_here
from moetuned.cli.warm_place import Place, PlaceError, find_place, limits_at, users_of
from moetuned.cli.warm_report import Outcome, WarmReport, exit_code, lines, resident_now
from moetuned.host.model_files import ModelFile
from moetuned.host.page_cache import PAGE_BYTES
from moetuned.host.processes import identify
from moetuned.schema.snapshot import BackendView
from moetuned.schema.units import format_bytes


def _pages(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """A size in whole pages, at least one: less cannot be in memory."""
    number = size(context, option, value)
    if number is None:
        return None
    if number < PAGE_BYTES:
        raise click.BadParameter(f"{value} is too little: memory comes in pages of {format_bytes(PAGE_BYTES)}")
    return number - number % PAGE_BYTES


@click.command(
    context_settings=SETTINGS,
    epilog="Examples:\n\n\b\n  sudo moetunectl warm /models/glm-00001-of-00007.gguf\n"
    "  sudo moetunectl warm /models/model.gguf --budget 20G --rate 500M\n"
    "  sudo moetunectl warm /models/model.gguf --cgroup /sys/fs/cgroup/system.slice/llama.service",
)
@click.argument("model", metavar="MODEL", type=click.Path(readable=False))
@click.option(
    "--budget",
    metavar="SIZE",
    callback=_pages,
    help="Most bytes of MODEL to have in memory. [what is free, and what of it is there]",
)
@click.option(
    "--rate",
    metavar="SIZE",
    callback=size,
    help="Most bytes a second to read; what is in memory does not count. [as fast as the disk is]",
)
@click.option(
    "--cgroup",
    metavar="DIR",
    help="Have the memory charged to this cgroup. [that of a running backend that maps MODEL]",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
@socket_option
def command(**options: Any) -> None:
    """Bring MODEL (any part of it) into memory: what every token needs first, then experts while there is room, those that were used
    last before others where the daemon has learned that.

    A daemon that watches a backend with this model is asked to do it; without one, or with --budget, --rate or --cgroup, it is
    done here. Nothing is pushed out of memory for it. Ctrl-C stops it; what is warm stays. Exits 1 when there is no
    room, 4 when memory is near its limit.
    """
    model = read_or_fail(options["model"])
    notes = list(cache_notes(filesystem_of(model)))
    by_hand = any(options[name] is not None for name in ("budget", "rate", "cgroup"))
    socket = options["path"] or find_socket(os.environ)
    view = _watched(socket, model, notes, must=options["path"] is not None)
    if view is not None and by_hand and view.warm.going_on and not waits_in_vain(view):
        fail(
            f"{options['model']}: the daemon is warming it; without --budget, --rate and --cgroup that is followed",
            EXIT_REFUSED,
        )
    if view is None or by_hand:
        report, before, after = _here(model, options, notes)
    else:
        report, before, after = _by_daemon(socket, model, view, notes, quiet=options["as_json"])
    if options["as_json"]:
        print_json(report)
    else:
        seconds = report.seconds if report.by == "here" else None  # The daemon's are mostly those of its ticks.
        outcome = Outcome(report.state, report.detail, report.done_bytes, report.goal_bytes, seconds)
        for line in lines(report.model, outcome, before, after, report.notes, width_of_output()):
            click.echo(line)
    sys.exit(exit_code(Outcome(report.state, report.detail)))


class _Progress:
    """A bar while it goes on, and what it waits for while it does not; off a terminal a line now and then, unless `quiet`."""

    def __init__(self, waits: str, name: str, *, quiet: bool) -> None:
        self._waiting = Elapsed(sys.stderr, waits)
        self._name = name
        self._bar: Bar | None = None
        self._lines = None if quiet or sys.stderr.isatty() else Lines(sys.stderr, name)

    def draw(self, done: int, goal: int, waits_for: str) -> None:
        """`goal` 0: not known yet."""
        if self._lines is not None:
            self._lines.say(done, goal, waits_for)
            return
        if waits_for or not goal:
            if self._bar is not None:
                self._bar.clear()
            self._waiting.draw(waits_for or "until it has looked")
            return
        self._waiting.clear()
        self._bar = self._bar or Bar(sys.stderr, goal)
        self._bar.draw(done, self._name)

    def clear(self) -> None:
        """Take the line away."""
        self._waiting.clear()
        if self._bar is not None:
            self._bar.clear()


_Warmed = tuple[WarmReport, Look, Look]


def _watched(socket: str, model: ModelFile, notes: list[str], *, must: bool) -> BackendView | None:
    """The running backend with this model that a daemon watches. `must`: raise DaemonError where no daemon answers."""
    from moetuned.api.client import Client

    try:
        return backend_with(Client(socket).status(), model.identity.paths)
    except DaemonUnreachable:
        if must:
            raise
    except DaemonError as error:
        if must:
            raise
        notes.append(f"the daemon was not asked: {error}")
    return None


def _by_daemon(socket: str, model: ModelFile, view: BackendView, notes: list[str], *, quiet: bool) -> _Warmed:
    from moetuned.api.client import Client

    client = Client(socket)
    before = looked(model)
    owner = not before.refused
    if not owner:
        before = look_of(view)
    progress = _Progress("the daemon waits:", view.name, quiet=quiet)
    try:
        outcome = warm_by_daemon(client, view.name, progress.draw)
    finally:
        progress.clear()
    after = looked(model) if owner else look_after(client, view.name)
    if outcome.done_bytes:
        notes.insert(0, f"warmed by the daemon for the backend {view.name}, charged to {view.cgroup or 'no cgroup'}")
    else:
        notes.insert(0, f"the daemon was asked, for the backend {view.name}")
    return _report(model, "daemon", view.name, view.cgroup, outcome, (before, after), notes), before, after


def _here(model: ModelFile, options: dict[str, Any], notes: list[str]) -> _Warmed:
    users = users_of(model.identity.paths)
    place = _place(options, users)
    before = looked(model)
    server = next((one for one in users if one.kind is not None), None)
    line = Elapsed(sys.stderr, "looking at the experts of")
    use = known_use(model, line.draw)
    line.clear()
    progress = _Progress("warming waits:", os.path.basename(model.identity.paths[0]), quiet=options["as_json"])
    try:
        outcome = warm_here(
            model,
            before,
            lambda: limits_at(place),
            place.join,
            options["budget"],
            options["rate"],
            progress.draw,
            use=use,
            backend=None if server is None else identify(server.pid),
        )
    finally:
        progress.clear()
    after = looked(model)
    if outcome.done_bytes:
        notes.insert(0, place.said)
    name = None if server is None else f"{server.name} (pid {server.pid})"
    return _report(model, "here", name, place.charged, outcome, (before, after), notes), before, after


def _place(options: dict[str, Any], users: Any) -> Place:
    try:
        return find_place(users, options["cgroup"])
    except PlaceError as error:
        fail(str(error), EXIT_REFUSED if error.refused else EXIT_USAGE)


def _report(
    model: ModelFile,
    by: str,
    backend: str | None,
    charged_to: str | None,
    outcome: Outcome,
    looks: tuple[Look, Look],
    notes: list[str],
) -> WarmReport:
    before, after = looks
    return WarmReport(
        model=model.identity.paths[0],
        by=by,
        backend=backend,
        charged_to=charged_to,
        state=outcome.state,
        detail=outcome.detail,
        done_bytes=outcome.done_bytes,
        goal_bytes=outcome.goal_bytes,
        budget_bytes=outcome.budget_bytes,
        seconds=outcome.seconds,
        before=resident_now(before),
        after=resident_now(after),
        unknown=before.unknown or after.unknown,
        notes=tuple(notes),
    )
