"""`moetunectl tune`: kernel settings seen, applied, checked and given back, without the daemon.

Uses the daemon's own undo journal, so what one applies the other can give back. While a daemon holds the journal, `plan`,
`verify` and `explain` only look, and the daemon is asked to `apply` and to `rollback`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import click
import msgspec

from moetuned import tunables
from moetuned.cli.tune_daemon import ask_holder, ask_instead_of_root, may_write, socket
from moetuned.cli.tune_options import (
    EXIT_NO,
    EXIT_REFUSED,
    Options,
    config_or_fail,
    fail,
    look,
    options_of,
    places,
    planned_steps,
    print_json,
    print_notes,
    print_table,
    require_root,
    wishes,
)
from moetuned.cli.tune_rivals import Rivals, find
from moetuned.cli.tune_swap import apply_swap, is_recorded, planned_swap, rollback_swap, verify_swap, warnings
from moetuned.host.fs import RealFS
from moetuned.schema.config import Config, Profile
from moetuned.schema.snapshot import TunableView, TuneAnswer
from moetuned.schema.swap import SwapStep, SwapStepKind
from moetuned.schema.tunable import PlannedStep, Wanted
from moetuned.state import borrowed_setting, tuning
from moetuned.state.tuning_views import show_wanted
from moetuned.state.undo_journal import (
    Held,
    JournalError,
    is_held,
    open_journal,
    read_boot_id,
    read_journal,
)

_PATIENCE_SECONDS = 90.0
"""What swapping off may take where nobody waits at a terminal: a service manager gives what runs after a stop two minutes."""
_NOTHING_HELD = "Nothing to give back: moetuned holds no setting."
_IN_ORDER = frozenset({"applied", "already", "adjusted", "skipped", "restored"})
_IN_FILES = {
    "explain": "tune_explain",
    "persist": "tune_persist",
    "readahead": "tune_readahead",
    "unpersist": "tune_persist",
}
"""Subcommands of a file of their own, imported when they are asked for."""


class Report(msgspec.Struct, frozen=True):
    """JSON of apply, verify and rollback: `ok` is what the exit code says."""

    ok: bool
    tuning: tuple[TunableView, ...]
    notes: tuple[str, ...] = ()


class PlanLine(msgspec.Struct, frozen=True):
    """JSON of one line of the plan. `original`: what stood there before moetuned, if it is ours now.

    `step`: write, already or skipped; of swap make, keep, already or skipped. `also_set_by`: who else sets it, to something else.
    """

    name: str
    step: str
    now: str | None
    wanted: str
    original: str | None
    reason: str
    why: str
    risk: str
    not_when: str
    also_set_by: tuple[str, ...] = ()


class PlanReport(msgspec.Struct, frozen=True):
    """JSON of the plan."""

    profile: str
    steps: tuple[PlanLine, ...]
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


@command.command()
@wishes
@places
def plan(**values: Any) -> None:
    """Say what apply would do, and why; change nothing."""
    options = options_of(values)
    held, notes = look(options)
    config = config_or_fail(options)
    wanted, steps = planned_steps(options, config, held)
    rivals = find(options)
    lines = (
        *(_plan_line(step, held.get(step.wanted.spec.name), rivals) for step in steps),
        *(_swap_line(step, rivals) for step in planned_swap(options, config)),
    )
    notes = (*notes, *warnings(options), *(rivals.notes if lines else ()))
    if options.as_json:
        print_json(PlanReport(wanted.profile.value, lines, notes))
        return
    print_table(
        ("SETTING", "NOW", "WANTED", "STEP", "BECAUSE OF"),
        [
            (
                line.name,
                f"{line.now or '?'}{f' (was {line.original})' if line.original is not None else ''}",
                line.wanted,
                line.step,
                line.reason,
            )
            for line in lines
        ],
        [tuple(_paragraphs(line)) for line in lines],
    )
    if not lines:
        click.echo(f"Nothing to set: profile {wanted.profile.value}. Try --profile {Profile.MOE_OFFLOAD.value}.")
    print_notes(notes)


@command.command()
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
    held, _ = look(options)
    config = config_or_fail(options)
    _, steps = planned_steps(options, config, held)
    swap_wanted = bool(planned_swap(options, config)) or is_recorded(options)
    if not steps and not swap_wanted and not os.path.exists(options.journal):
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

    Swap first: some settings depend on where it lives.
    """
    fs = RealFS(options.root)
    with open_journal(options.journal, read_boot_id(fs)) as journal:
        swap = apply_swap(options, config)
        _, steps = planned_steps(options, config, held)
        return (*tuning.apply(fs, journal, steps, by_hand=True), *swap), (*journal.notes, *warnings(options))


@command.command()
@wishes
@places
def verify(**values: Any) -> None:
    """Compare the settings with what they should be. Exits 1 if one is not as wanted."""
    options = options_of(values)
    held, notes = look(options)
    config = config_or_fail(options)
    _, steps = planned_steps(options, config, held)
    views = (*_verify_here(options, held, steps), *verify_swap(options, planned_swap(options, config)))
    _finish(options, views, (*notes, *warnings(options)), "Nothing to check.")


def _verify_here(options: Options, held: dict[str, Held], steps: tuple[PlannedStep, ...]) -> tuple[TunableView, ...]:
    fs = RealFS(options.root)
    try:
        yields = read_journal(options.journal, read_boot_id(fs)).yields
    except JournalError:  # `look` has said so
        yields = {}
    return tuning.verify(fs, held, steps, yields=yields)


@command.command()
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
        notes, problems = journal.notes, journal.problems
        try:  # what a measurement has borrowed may be one of the settings
            borrowed = borrowed_setting.give_back(fs, options.journal, boot_id)
        except JournalError as error:
            borrowed, notes = (), (*notes, str(error))
        views = (*borrowed, *tuning.rollback(fs, journal))
        return (*views, *rollback_swap(options, patience_seconds)), notes, problems


def _unreadable(path: str, lines: int) -> str:
    kept = path if os.path.exists(path) else f"{path}.damaged"
    what = "a line" if lines == 1 else f"{lines} lines"
    return (
        f"{what} of the undo journal cannot be read, so a setting may not be as it was before moetuned; the journal is kept "
        f"in {kept}: compare what its lines say with `moetunectl tune explain`, or reboot, which resets all of them"
    )


def _paragraphs(line: PlanLine) -> Iterator[str]:
    """What stands below a line of the plan."""
    yield line.why
    yield f"Risk: {line.risk}" + (f" Not when: {line.not_when}" if line.not_when else "")
    if line.also_set_by:
        yield f"Also set by: {'; '.join(line.also_set_by)}"


def _plan_line(step: PlannedStep, held: Held | None, rivals: Rivals) -> PlanLine:
    wanted: Wanted = step.wanted
    manual = tunables.manual_of(wanted.spec)
    return PlanLine(
        name=wanted.spec.name,
        step=step.kind.value,
        now=tuning.show_cell(step.now),
        wanted=show_wanted(wanted),
        original=tuning.show_cell(held.original) if held is not None else None,
        reason=step.reason,
        why=manual.why,
        risk=manual.risk,
        not_when=manual.not_when,
        also_set_by=rivals.of(wanted.spec.place, wanted.cell.value),
    )


def _swap_line(step: SwapStep, rivals: Rivals) -> PlanLine:
    asked_by = "tuning.swap or the profile"
    return PlanLine(
        name=step.name,
        step=step.kind.value,
        now="none" if step.kind is SwapStepKind.MAKE else step.wanted if step.kind is SwapStepKind.KEEP else None,
        wanted=step.wanted,
        original=None,
        reason=step.reason or asked_by,
        why=step.why,
        risk=step.risk,
        not_when="",
        also_set_by=rivals.of_swap(),
    )


def _finish_answer(options: Options, answer: TuneAnswer, *, given_back: bool = False) -> NoReturn:
    """What a daemon did when it was asked."""
    # A daemon makes and takes away swap on the side: that is planned when it answers.
    fine = _IN_ORDER | {"planned"} | ({"drifted", "yielded"} if given_back else set())
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
