"""`moetunectl tune`: kernel settings seen, applied, checked and given back, without the daemon.

Uses the daemon's own undo journal, so what one applies the other can give back. While a daemon holds the journal, `plan`,
`verify` and `explain` only look, and the daemon is asked to `apply` and to `rollback`.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NoReturn

import click
import msgspec

from moetuned import tunables
from moetuned.cli.tune_daemon import ask_holder, ask_instead_of_root, may_write, socket
from moetuned.cli.tune_options import (
    EXIT_NO,
    EXIT_REFUSED,
    Options,
    borrowed_here,
    config_or_fail,
    fail,
    look,
    options_of,
    persisted,
    places,
    planned_steps,
    print_json,
    print_notes,
    print_table,
    require_root,
    wishes,
)
from moetuned.cli.tune_swap import apply_swap, is_recorded, planned_swap, rollback_swap, verify_swap, warnings
from moetuned.host.fs import HostFS, RealFS
from moetuned.schema.config import Config
from moetuned.schema.snapshot import TunableView, TuneAnswer
from moetuned.state import borrowed_setting, tuning
from moetuned.state.undo_journal import (
    Held,
    JournalError,
    is_held,
    open_journal,
    read_boot_id,
)

_PATIENCE_SECONDS = 90.0
"""What swapping off may take where nobody waits at a terminal: a service manager gives what runs after a stop two minutes."""
_NOTHING_HELD = "Nothing to give back: moetuned holds no setting."
_IN_ORDER = frozenset({"applied", "already", "adjusted", "skipped", "restored"})
_IN_FILES = {
    "explain": "tune_explain",
    "persist": "tune_persist",
    "plan": "tune_plan",
    "readahead": "tune_readahead",
    "unpersist": "tune_persist",
}
"""Subcommands of a file of their own, imported when they are asked for."""


class Report(msgspec.Struct, frozen=True):
    """JSON of apply, verify and rollback: `ok` is what the exit code says."""

    ok: bool
    tuning: tuple[TunableView, ...]
    notes: tuple[str, ...] = ()


class _WithFiles(click.Group):
    """A group some of whose commands lie in files of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_IN_FILES})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _IN_FILES:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(importlib.import_module(f"moetuned.cli.{_IN_FILES[cmd_name]}"), cmd_name)
        return found


@click.group(
    name="tune",
    cls=_WithFiles,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl tune plan --profile moe-offload\n  sudo moetunectl tune apply\n"
    "  moetunectl tune explain vm.dirty_ratio\n  sudo moetunectl tune rollback",
)
def command() -> None:
    """Set the machine up for models larger than RAM, and give it back exactly as it was."""


@command.command(
    epilog="Examples:\n\n\b\n  sudo moetunectl tune apply\n  sudo moetunectl tune apply --profile moe-offload"
)
@wishes
@places
@socket
def apply(path: str | None, **values: Any) -> None:
    """Write the settings of the config's profile. Exits 1 if one could not be set or somebody else has changed it.

    A running daemon is asked to do it, with the config that it has read. What was left to somebody else because they had changed
    it is set again.
    """
    options = options_of(values)
    if not may_write(options):
        _finish_answer(options, ask_instead_of_root(options, "apply", path))
    if is_held(options.journal):  # before the config is read: a daemon may use another one than the default
        _finish_answer(options, ask_holder(options, "apply", path))
    held = look(options)[0].held
    config = config_or_fail(options)
    swap = planned_swap(options, config)
    kept = (options.journal, borrowed_setting.journal_path(options.journal))
    if not (
        planned_steps(options, config, held, swap) or swap or is_recorded(options) or any(map(os.path.exists, kept))
    ):
        _finish(options, (), (), "Nothing to set.")
    try:
        views, notes = _apply_here(options, config, held)
    except JournalError as error:
        fail(str(error), EXIT_REFUSED)
    _finish(options, views, notes, "Nothing to set.")


def _apply_here(
    options: Options, config: Config, held: dict[str, Held]
) -> tuple[tuple[TunableView, ...], tuple[str, ...]]:
    """Views and notes of applying in this process. Raises JournalError.

    What a measurement has left first, or it would be taken for the original; then swap: some settings depend on where it lives.
    """
    fs = RealFS(options.root)
    boot_id = read_boot_id(fs)
    with open_journal(options.journal, boot_id) as journal:
        borrowed, notes = _give_back_borrowed(fs, options, boot_id)
        swap = apply_swap(options, config)
        views = tuning.apply(fs, journal, planned_steps(options, config, held), by_hand=True)
        return (*borrowed, *views, *swap), (*notes, *journal.notes, *warnings(options))


def _give_back_borrowed(fs: HostFS, options: Options, boot_id: str) -> tuple[tuple[TunableView, ...], tuple[str, ...]]:
    """Views and notes of giving back what a measurement that was killed has left."""
    try:
        return borrowed_setting.give_back(fs, options.journal, boot_id), ()
    except JournalError as error:
        return (), (str(error),)


@command.command(
    epilog="Examples:\n\n\b\n  moetunectl tune verify\n  moetunectl tune verify --json && echo all is as wanted"
)
@wishes
@places
def verify(**values: Any) -> None:
    """Compare the settings with what they should be. Exits 1 if one is not as wanted."""
    options = options_of(values)
    contents, notes = look(options)
    borrowed, borrowed_notes = borrowed_here(options)
    config = config_or_fail(options)
    swap = planned_swap(options, config)
    steps = planned_steps(options, config, contents.held, swap)
    settings = tuning.verify(RealFS(options.root), contents.held, steps, yields=contents.yields)
    settings = borrowed_setting.explain(settings, contents.held.values(), borrowed)
    views = (*settings, *verify_swap(options, swap))
    if tunables.changes_nothing(config.tuning):
        notes = (*notes, *persisted(options))
    ok = None if not borrowed_notes else False
    _finish(options, views, (*notes, *borrowed_notes, *warnings(options)), "Nothing to check.", ok=ok)


@command.command(epilog="Examples:\n\n\b\n  sudo moetunectl tune rollback\n  sudo moetunectl tune rollback --json")
@places
@socket
@click.option("--alone", is_flag=True, help="Ask no running daemon; exit 4 where one holds the journal.")
def rollback(path: str | None, *, alone: bool, **values: Any) -> None:
    """Give every setting back as it was. What somebody else has changed since is reported and left alone.

    A running daemon is asked to do it; it sets nothing then until `tune apply`, a reload or a restart.
    """
    options = options_of(values)
    if alone:
        require_root(options)
    elif not may_write(options):
        _finish_answer(options, ask_instead_of_root(options, "rollback", path), given_back=True)
    if not os.path.isdir(os.path.dirname(options.journal)):
        _finish(options, (), (), _NOTHING_HELD)
    if not alone and is_held(options.journal):
        _finish_answer(options, ask_holder(options, "rollback", path), given_back=True)
    try:
        views, notes, problems = _rollback_here(options, _PATIENCE_SECONDS if alone else None)
    except JournalError as error:
        fail(str(error), EXIT_REFUSED)
    if problems:
        notes = (*notes, *problems, _unreadable(options.journal, len(problems)))
    ok = not problems and all(view.state != "failed" for view in views)
    _finish(options, views, notes, "Nothing else to give back." if problems else _NOTHING_HELD, ok=ok)


def _rollback_here(
    options: Options, patience_seconds: float | None
) -> tuple[tuple[TunableView, ...], tuple[str, ...], tuple[str, ...]]:
    """Views, notes and unreadable lines of giving back in this process. Raises JournalError."""
    fs = RealFS(options.root)
    boot_id = read_boot_id(fs)
    with open_journal(options.journal, boot_id) as journal:
        problems = journal.problems
        borrowed, notes = _give_back_borrowed(fs, options, boot_id)  # it may be one of the settings
        views = (*borrowed, *tuning.rollback(fs, journal))
        views = (*views, *tuning.left_to_others(fs, journal, views))
        return (*views, *rollback_swap(options, patience_seconds)), (*journal.notes, *notes), problems


def _unreadable(path: str, lines: int) -> str:
    kept = path if os.path.exists(path) else f"{path}.damaged"
    what = "a line" if lines == 1 else f"{lines} lines"
    return (
        f"{what} of the undo journal cannot be read, so a setting may not be as it was before moetuned; the journal is kept "
        f"in {kept}: compare what its lines say with `moetunectl tune explain`, or reboot, which resets all of them"
    )


def _finish_answer(options: Options, answer: TuneAnswer, *, given_back: bool = False) -> NoReturn:
    """What a daemon did when it was asked."""
    fine = _IN_ORDER | ({"drifted", "yielded"} if given_back else set())
    ok = all(view.state in fine for view in answer.tuning)
    _finish(options, answer.tuning, answer.notes, _NOTHING_HELD if given_back else "Nothing to set.", ok=ok)


def _finish(
    options: Options, views: tuple[TunableView, ...], notes: tuple[str, ...], empty: str, *, ok: bool | None = None
) -> NoReturn:
    if ok is None:
        ok = all(view.state in _IN_ORDER for view in views)
    if options.as_json:
        print_json(Report(ok, views, notes))
    else:
        print_table(
            ("SETTING", "NOW", "WANTED", "ORIGINAL", "STATE", ""),
            [
                (view.name, view.now or "?", view.wanted or "", view.original or "", view.state, view.detail)
                for view in views
            ],
        )
        if not views:
            click.echo(empty)
        print_notes(notes)
    sys.exit(0 if ok else EXIT_NO)
