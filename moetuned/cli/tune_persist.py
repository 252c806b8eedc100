"""`moetunectl tune persist` and `unpersist`: files that keep the settings over a reboot, written and taken away on request only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click
import msgspec

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
    print_wrapped,
    require_root,
    wishes,
)
from moetuned.cli.tune_swap import is_recorded, planned_swap
from moetuned.decide.persist import OWN_FILES, READERS, disks_of, plan_persist, plan_unpersist, preview
from moetuned.decide.swap_plan import ZRAM_NAME, swap_file_name
from moetuned.decide.swap_values import DEPENDENT
from moetuned.host.device_identity import device_match
from moetuned.host.fs import RealFS
from moetuned.host.rivals import look_for_rivals
from moetuned.host.system_file import read_system_file, replace_files
from moetuned.parse.config_values import wished_swap
from moetuned.schema.config import Config, Profile
from moetuned.schema.persisted import FileChange, FileStep, LeftOut, PersistPlan
from moetuned.schema.swap import SwapStep, SwapStepKind
from moetuned.schema.tunable import PlannedStep, StepKind

_NOTHING_NOW = "They count from the next boot on; `moetunectl tune apply` or the daemon sets the same values now."
_CHANGED = (FileStep.WRITE, FileStep.REMOVE)


class PersistReport(msgspec.Struct, frozen=True):
    """JSON of both commands. `done` False: a dry run, or refused; `ok` is what the exit code says."""

    ok: bool
    done: bool
    files: tuple[FileChange, ...]
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@click.command(
    epilog="Examples:\n\n\b\n  moetunectl tune persist --dry-run\n  sudo moetunectl tune persist\n"
    "  sudo moetunectl tune persist --profile moe-offload --json"
)
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@wishes
@places
def persist(dry_run: bool, **values: Any) -> None:
    """Keep the plan's settings over a reboot: write files that the system reads at boot.

    The files are /etc/sysctl.d/90-moetuned.conf, /etc/tmpfiles.d/moetuned.conf and /etc/udev/rules.d/90-moetuned.rules. What
    they will hold is shown first. The daemon never writes them; `moetunectl tune unpersist` takes them away. A file that was
    edited since is not touched (exit code 4).
    """
    options = options_of(values)
    _may_write(options, dry_run)
    config = config_or_fail(options)
    contents, notes = look(options)
    swap = planned_swap(options, config)
    steps = planned_steps(options, config, contents.held, swap)
    fs = RealFS(options.root)
    found = look_for_rivals(fs)
    disks = {name: device_match(fs, name) for name in disks_of(steps)}
    unread = [path for path, programs in READERS.items() if not any(map(fs.exists, programs))]
    own = _own_files(options)
    plan = plan_persist(steps, disks, own, found.rivals, unread, _unkept(options, config, steps, swap))
    empty = "Nothing to keep: no setting of the plan can be."
    if not steps:
        profile = config.tuning.profile.value
        empty = f"Nothing to keep: profile {profile} sets nothing. Try --profile {Profile.MOE_OFFLOAD.value}."
    if there := [path for path, text in own.items() if text is not None]:
        empty += f" In /etc there still is {', '.join(there)}; `moetunectl tune unpersist` takes it away."
    _finish(options, plan, (*notes, *found.notes), dry_run=dry_run, empty=empty)


def _unkept(options: Options, config: Config, steps: Sequence[PlannedStep], swap: Sequence[SwapStep]) -> dict[str, str]:
    """Swap that moetuned makes, and values that are only right with it: at boot there is none until the daemon makes it."""
    wish = wished_swap(config.tuning)
    names = [] if wish is None or wish.zram is None else [ZRAM_NAME]
    names += [] if wish is None or wish.file is None else [swap_file_name(wish.file)]
    reasons = {step.name: step.reason for step in swap if step.kind in (SwapStepKind.ALREADY, SwapStepKind.SKIPPED)}
    found = {name: reasons.get(name) or "no file makes it; the daemon does at each start" for name in names}
    if is_recorded(options) or any(step.kind in (SwapStepKind.MAKE, SwapStepKind.KEEP) for step in swap):
        found |= {
            step.wanted.spec.name: "its value is for swap that moetuned makes, which is not there before the daemon makes it"
            for step in steps
            if step.wanted.by_profile and step.wanted.spec.name in DEPENDENT and step.kind is not StepKind.SKIPPED
        }
    return found


@click.command(epilog="Examples:\n\n\b\n  moetunectl tune unpersist --dry-run\n  sudo moetunectl tune unpersist")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@places
def unpersist(dry_run: bool, **values: Any) -> None:
    """Take away the files that `persist` wrote. The settings stay as they are until the next boot or a rollback.

    A file that was edited since is not touched (exit code 4).
    """
    options = options_of(values)
    _may_write(options, dry_run)
    plan = plan_unpersist(_own_files(options))
    _finish(options, plan, (), dry_run=dry_run, empty="Nothing to take away: there is no file of moetuned's.")


def _may_write(options: Options, dry_run: bool) -> None:
    if not dry_run:
        require_root(options)


def _at(options: Options, path: str) -> str:
    return path if options.root == "/" else options.root + path


def _own_files(options: Options) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    for path in OWN_FILES:
        try:
            texts[path] = read_system_file(_at(options, path))
        except OSError as error:
            fail(
                f"{path} is not a plain file that can be read ({error.strerror or error}); look at it, remove it by hand "
                "and try again. Nothing was changed",
                EXIT_REFUSED,
            )
    return texts


def _finish(options: Options, plan: PersistPlan, notes: tuple[str, ...], *, dry_run: bool, empty: str) -> None:
    refused = [change for change in plan.changes if change.step is FileStep.REFUSED]
    if not options.as_json:
        _show(plan)
    if refused:
        if options.as_json:
            print_json(_report(plan, notes, ok=False, done=False))
        fail("; ".join(change.reason for change in refused) + ". Nothing was changed", EXIT_REFUSED)
    if not dry_run:
        _write(options, plan)
    if options.as_json:
        print_json(_report(plan, notes, ok=True, done=not dry_run))
        return
    _conclude(plan, dry_run=dry_run, empty=empty)
    print_notes(notes)


def _report(plan: PersistPlan, notes: tuple[str, ...], *, ok: bool, done: bool) -> PersistReport:
    return PersistReport(ok, done, plan.changes, plan.left_out, plan.warnings, notes)


def _show(plan: PersistPlan) -> None:
    for change in plan.changes:
        text = preview(change)
        if text:
            click.echo(text + "\n")
    if plan.left_out:
        click.echo("Not kept:")
        for left_out in plan.left_out:
            print_wrapped(f"{left_out.name}: {left_out.reason}")
    for warning in plan.warnings:
        click.echo(f"warning: {warning}", err=True)


def _conclude(plan: PersistPlan, *, dry_run: bool, empty: str) -> None:
    if not plan.changes:
        click.echo(empty)
        return
    would = "would be " if dry_run else ""
    words = {FileStep.WRITE: f"{would}written", FileStep.REMOVE: f"{would}removed", FileStep.UNCHANGED: "unchanged"}
    for change in plan.changes:
        click.echo(f"{change.path}: {words[change.step]}")
    if any(change.after is not None for change in plan.changes):
        click.echo(_NOTHING_NOW)


def _write(options: Options, plan: PersistPlan) -> None:
    texts = {_at(options, change.path): change.after for change in plan.changes if change.step in _CHANGED}
    try:
        replace_files(texts)
    except OSError as error:
        code = EXIT_REFUSED if isinstance(error, PermissionError) else EXIT_NO
        fail(f"{os.fsdecode(error.filename or 'a file')} cannot be written: {error.strerror or error}", code)
