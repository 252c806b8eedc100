"""`moetunectl tune plan`: what apply would do and give back, and why; changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from moetuned import tunables
from moetuned.cli.tune_options import (
    Options,
    borrowed_here,
    checked_config,
    look,
    options_of,
    places,
    planned_steps,
    print_json,
    print_notes,
    print_table,
    real_fs,
    wishes,
)
from moetuned.cli.tune_rivals import Rivals, find
from moetuned.cli.tune_swap import planned_swap, verify_swap, warnings
from moetuned.decide.tuning_plan import within
from moetuned.schema.capability import Action, Answer
from moetuned.schema.config import Profile
from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import SwapStep, SwapStepKind
from moetuned.schema.tunable import Cell, PlannedStep, StepKind
from moetuned.state import tuning
from moetuned.state.borrowed_setting import BORROWED, LEFT, Borrowed
from moetuned.state.tuning_views import show_cell, wish_of
from moetuned.state.undo_journal import Held

_DAEMON_SECONDS = 2.0
_CHANGES = frozenset({Action.CHANGE_SETTING, Action.SWAP_FILE, Action.ZRAM})
GIVE_BACK = "give back"
_LEAVE = "leave"


class PlanLine(msgspec.Struct, frozen=True):
    """JSON of one line of the plan. `original`: what stood there before moetuned, if it is ours now.

    `step`: write, already, skipped, give back (what moetuned set and nobody wants now) or leave (somebody has changed it since);
    of swap make, keep, already, skipped or give back. `wanted` None: no value. `also_set_by`: who else sets it, to something else.
    """

    name: str
    step: str
    now: str | None
    wanted: str | None
    original: str | None
    reason: str
    why: str = ""
    risk: str = ""
    not_when: str = ""
    also_set_by: tuple[str, ...] = ()
    side_effect: str = ""


class PlanReport(msgspec.Struct, frozen=True):
    """JSON of the plan."""

    profile: str
    steps: tuple[PlanLine, ...]
    notes: tuple[str, ...] = ()


@click.command(
    epilog="Examples:\n\n\b\n  moetunectl tune plan\n  moetunectl tune plan --profile moe-offload\n"
    "  moetunectl tune plan --config ./moetuned.yaml --json"
)
@wishes
@places
def plan(**values: Any) -> None:
    """Say what apply would do, and why; change nothing."""
    options = options_of(values)
    contents, notes = look(options)
    borrowed, borrowed_notes = borrowed_here(options)
    config, config_notes = checked_config(options)
    swap = planned_swap(options, config)
    steps = planned_steps(options, config, contents.held, swap)
    rivals = find(options)
    lines = (
        *(_plan_line(step, contents.held.get(step.wanted.spec.name), rivals) for step in steps),
        *_given_back(options, contents.held, steps),
        *(_swap_line(step, rivals) for step in swap),
        *(_swap_given_back(view) for view in verify_swap(options, swap) if view.wanted == "none"),
    )
    lines = _with_borrowed(lines, borrowed, contents.held)
    notes = (*notes, *borrowed_notes, *config_notes, *warnings(options), *(rivals.notes if lines else ()))
    notes = (*notes, *_of_daemon(options, lines))
    profile = config.tuning.profile.value
    if options.as_json:
        print_json(PlanReport(profile, lines, notes))
        return
    print_table(
        ("SETTING", "NOW", "WANTED", "STEP", "BECAUSE OF"),
        [
            (
                line.name,
                f"{line.now or '?'}{f' (was {line.original})' if line.original is not None else ''}",
                line.wanted or "-",
                line.step,
                line.reason,
            )
            for line in lines
        ],
        [tuple(_paragraphs(line)) for line in lines],
    )
    if not lines:
        click.echo(f"Nothing to set: profile {profile}. Try --profile {Profile.MOE_OFFLOAD.value}.")
    print_notes(notes)


def _of_daemon(options: Options, lines: tuple[PlanLine, ...]) -> tuple[str, ...]:
    """What of it a daemon that runs cannot do from its sandbox; nothing where none answers."""
    if options.root != "/" or not lines:
        return ()
    from moetuned.api.client import Client
    from moetuned.api.errors import DaemonError
    from moetuned.api.socket_path import find_socket

    try:
        found = Client(find_socket(os.environ), _DAEMON_SECONDS).capabilities()
    except DaemonError:
        return ()
    refused = (one for one in found.capabilities if one.answer is Answer.NO and _CHANGES.intersection(one.actions))
    return tuple(
        dict.fromkeys(f"the daemon cannot do that from its sandbox: {one.subject}: {one.why}" for one in refused)
    )


def _paragraphs(line: PlanLine) -> Iterator[str]:
    """What stands below a line of the plan."""
    if line.why:
        yield line.why
    if line.risk:
        yield f"Risk: {line.risk}" + (f" Not when: {line.not_when}" if line.not_when else "")
    if line.side_effect:
        yield f"Side effect: {line.side_effect}"
    if line.also_set_by:
        yield f"Also set by: {'; '.join(line.also_set_by)}"


def _plan_line(step: PlannedStep, held: Held | None, rivals: Rivals) -> PlanLine:
    wanted = step.wanted
    manual = tunables.manual_of(wanted.spec)
    kind, reason = step.kind.value, step.reason
    if held is not None:
        kind, reason = _of_held(step, held) or (kind, reason)
    return PlanLine(
        name=wanted.spec.name,
        step=kind,
        now=show_cell(step.now),
        wanted=wish_of(wanted),
        original=show_cell(held.original) if held is not None else None,
        reason=reason,
        why=manual.why,
        risk=manual.risk,
        not_when=manual.not_when,
        also_set_by=rivals.of(wanted.spec.place, wanted.cell.value),
        side_effect=manual.side_effect,
    )


def _of_held(step: PlannedStep, held: Held) -> tuple[str, str] | None:
    """What apply does about a setting that is ours where that is not what the plan alone says."""
    wanted, now = step.wanted, step.now
    if now is None:
        return None
    if now in held.ours or not held.settled:
        if step.kind is StepKind.SKIPPED:
            return GIVE_BACK, step.reason
        if now in held.ours and within(wanted.bound, wanted.cell, held.original):
            return GIVE_BACK, f"what was there before moetuned is as wanted; {step.reason}"
        return None
    if step.kind is StepKind.WRITE:
        return _LEAVE, _drift(now)
    return None


def _drift(now: Cell) -> str:
    return f"somebody changed it to {show_cell(now)}; apply says so and leaves it alone, the next one sets it again"


def _given_back(options: Options, held: Mapping[str, Held], steps: tuple[PlannedStep, ...]) -> Iterator[PlanLine]:
    """What is ours and not in the plan any more."""
    planned = {step.wanted.spec.name for step in steps}
    rest = {name: entry for name, entry in held.items() if name not in planned}
    for view in tuning.verify(real_fs(options), rest, ()):
        drifted = view.state == "drifted"
        yield PlanLine(
            name=view.name,
            step=_LEAVE if drifted else GIVE_BACK,
            now=view.now,
            wanted=None if drifted else view.original,
            original=view.original,
            reason=view.detail if drifted else "no longer wanted",
        )


def _with_borrowed(lines: tuple[PlanLine, ...], borrowed: Borrowed, held: Mapping[str, Held]) -> tuple[PlanLine, ...]:
    """Also what a measurement has borrowed: what stands there now is not what somebody wants."""
    names = {entry.place.path: entry.tunable for entry in held.values()}
    found = {line.name: line for line in lines}
    for entry in borrowed.held:
        name = names.get(entry.place.path, entry.tunable)
        known = found.get(name) or PlanLine(
            name, "", show_cell(entry.intended), show_cell(entry.original), show_cell(entry.original), ""
        )
        step, reason = (known.step or _LEAVE, BORROWED) if borrowed.alive else (GIVE_BACK, LEFT)
        if known.step == StepKind.WRITE and not borrowed.alive:
            reason = f"{reason}; then {known.wanted} is set"
        found[name] = msgspec.structs.replace(known, step=step, reason=reason)
    return tuple(found.values())


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
        also_set_by=rivals.of_swap(),
    )


def _swap_given_back(view: TunableView) -> PlanLine:
    """Swap that moetuned made and nobody wishes for now."""
    return PlanLine(view.name, GIVE_BACK, view.now, view.wanted, None, view.detail)
