"""`moetunectl tune`: kernel settings seen, applied, checked and given back, without the daemon.

Uses the daemon's own undo journal, so what one applies the other can give back. While a daemon holds the journal, `plan`,
`verify` and `explain` only look, and `apply` and `rollback` are refused.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NoReturn

import click
import msgspec

from moetuned import tunables
from moetuned.cli.tune_options import (
    EXIT_NO,
    EXIT_REFUSED,
    EXIT_USAGE,
    Options,
    config_or_fail,
    device_of,
    fail,
    look,
    options_of,
    places,
    planned_steps,
    print_json,
    print_notes,
    print_table,
    print_wrapped,
    read_config,
    require_root,
    targets_of,
    wishes,
)
from moetuned.host.fs import RealFS
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.config import Profile
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Bound, PlannedStep, StepKind, Targets, Tunable, TunableSpec, Wanted
from moetuned.state import tuning
from moetuned.state.undo_journal import Held, JournalError, open_journal, read_boot_id

_NOTHING_HELD = "Nothing to give back: moetuned holds no setting."
_IN_ORDER = frozenset({"applied", "already", "adjusted", "skipped", "restored"})
_IN_FILES = {"persist": "tune_persist", "readahead": "tune_readahead", "unpersist": "tune_persist"}
"""Subcommands of a file of their own, imported when they are asked for."""


class Report(msgspec.Struct, frozen=True):
    """JSON of apply, verify and rollback: `ok` is what the exit code says."""

    ok: bool
    tuning: tuple[TunableView, ...]
    notes: tuple[str, ...] = ()


class PlanLine(msgspec.Struct, frozen=True):
    """JSON of one line of the plan. `original`: what stood there before moetuned, if it is ours now."""

    name: str
    step: StepKind
    now: str | None
    wanted: str
    bound: Bound
    original: str | None
    reason: str
    why: str
    risk: str
    not_when: str


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
    wanted, steps = planned_steps(options, config_or_fail(options), held)
    lines = tuple(_plan_line(step, held.get(step.wanted.spec.name)) for step in steps)
    if options.as_json:
        print_json(PlanReport(wanted.profile.value, lines, notes))
        return
    print_table(
        ("SETTING", "NOW", "WANTED", "STEP", "BECAUSE OF"),
        [
            (
                line.name,
                f"{line.now or '?'}{f' (was {line.original})' if line.original is not None else ''}",
                line.wanted if line.bound is Bound.SET else f"{line.bound} {line.wanted}",
                line.step.value,
                line.reason,
            )
            for line in lines
        ],
        [(line.why, f"Risk: {line.risk} Not when: {line.not_when}") for line in lines],
    )
    if not lines:
        click.echo(f"Nothing to set: profile {wanted.profile.value}. Try --profile {Profile.MOE_OFFLOAD.value}.")
    print_notes(notes)


@command.command()
@wishes
@places
def apply(**values: Any) -> None:
    """Write the settings of the config's profile. Exits 1 if one could not be set or somebody else has changed it."""
    options = options_of(values)
    require_root(options)
    held, _ = look(options)
    _, steps = planned_steps(options, config_or_fail(options), held)
    fs = RealFS(options.root)
    if not steps and not os.path.exists(options.journal):
        _finish(options, (), (), "Nothing to set.")
    try:
        with open_journal(options.journal, read_boot_id(fs)) as journal:
            views = tuning.apply(fs, journal, steps)
            notes = journal.notes
    except JournalError as error:
        fail(str(error), EXIT_REFUSED)
    _finish(options, views, notes, "Nothing to set.")


@command.command()
@wishes
@places
def verify(**values: Any) -> None:
    """Compare the settings with what they should be. Exits 1 if one is not as wanted."""
    options = options_of(values)
    held, notes = look(options)
    _, steps = planned_steps(options, config_or_fail(options), held)
    _finish(options, tuning.verify(RealFS(options.root), held, steps), notes, "Nothing to check.")


@command.command()
@places
def rollback(**values: Any) -> None:
    """Give every setting back as it was. What somebody else has changed since is reported and left alone."""
    options = options_of(values)
    require_root(options)
    fs = RealFS(options.root)
    if not os.path.isdir(os.path.dirname(options.journal)):
        _finish(options, (), (), _NOTHING_HELD)
    try:
        with open_journal(options.journal, read_boot_id(fs)) as journal:
            problems = journal.problems
            notes = (*journal.notes, *problems)
            views = tuning.rollback(fs, journal)
    except JournalError as error:
        fail(str(error), EXIT_REFUSED)
    if problems:
        notes = (*notes, _unreadable(options.journal, len(problems)))
    ok = not problems and all(view.state != "failed" for view in views)
    _finish(options, views, notes, "Nothing else to give back." if problems else _NOTHING_HELD, ok=ok)


def _unreadable(path: str, lines: int) -> str:
    kept = path if os.path.exists(path) else f"{path}.damaged"
    what = "a line" if lines == 1 else f"{lines} lines"
    return (
        f"{what} of the undo journal cannot be read, so a setting may not be as it was before moetuned; the journal is kept "
        f"in {kept}: compare what its lines say with `moetunectl tune explain`, or reboot, which resets all of them"
    )


@command.command()
@click.argument("key", required=False)
@click.option("--config", type=click.Path(), help="Config whose models' devices are shown. [the daemon's]")
@places
def explain(key: str | None, **values: Any) -> None:
    """Say what a setting does, why moetuned sets it and when not to; without KEY, list all."""
    options = options_of(values)
    if key is None:
        chosen = [tunables.load(name) for name in tunables.module_names()]
    else:
        found = tunables.find(key)
        if found is None:
            known = ", ".join(tunables.load(name).spec.name for name in tunables.module_names())
            fail(f"{key}: moetuned does not know this setting; it knows {known}", EXIT_USAGE)
        chosen = [found]
    held, notes = look(options)
    fs = RealFS(options.root)
    targets = _targets(options) if any(tunable.spec.per_device for tunable in chosen) else Targets()
    entries = [_explained(options, fs, tunable, held, targets) for tunable in chosen]
    if options.as_json:
        print_json(entries)
        return
    for number, entry in enumerate(entries):
        click.echo(("\n" if number else "") + f"{entry['name']}: {entry['summary']}")
        for label, text in entry.items():
            if label not in ("name", "summary") and text is not None:
                print_wrapped(f"{label.replace('_', ' ')}: {text}")
    print_notes(notes)


def _explained(
    options: Options, fs: RealFS, tunable: Tunable, held: dict[str, Held], targets: Targets | str
) -> dict[str, str | None]:
    spec, manual = tunable.spec, tunable.manual
    if isinstance(targets, str) and spec.per_device:
        found: tuple[TunableSpec, ...] = ()
        now = f"unknown, {targets}"
    else:
        known = Targets() if isinstance(targets, str) else targets
        found = tunables.instances(fs, tunable, known, device_of(options))
        now = "; ".join(_now(fs, each) for each in found)
    if spec.per_device:
        originals = [f"{name} {tuning.show_cell(entry.original)}" for name, entry in held.items() if _is_of(name, spec)]
    else:
        originals = [f"{tuning.show_cell(held[spec.name].original)}"] if spec.name in held else []
    return {
        "name": spec.name,
        "summary": manual.summary,
        "why": manual.why,
        "risk": manual.risk,
        "not_when": manual.not_when,
        "side_effect": manual.side_effect or None,
        "source": manual.source,
        "wanted": "; ".join(dict.fromkeys(_wanted(each) for each in found or (spec,))) or None,
        "now": now or "unknown, no backend of the config has a model",
        "original": "; ".join(originals) or None,
        "file": " or ".join(path for path in (spec.place.path, spec.place.twin_path) if path is not None),
        "config_key": spec.config_key + (f" or tuning.sysctl.{spec.twin.name}" if spec.twin is not None else ""),
    }


def _wanted(spec: TunableSpec) -> str:
    bound = "" if spec.bound is Bound.SET else f"{spec.bound} "
    text = ", ".join(f"{bound}{value} in {profile}" for profile, value in sorted(spec.wanted.items()))
    because = spec.skip or spec.because
    return f"{text} ({because})" if text and because else text or (f"nothing: {because}" if because else "")


def _now(fs: RealFS, spec: TunableSpec) -> str:
    reading = tunables.read_instance(fs, spec)
    value = tuning.show_cell(reading.cell) or f"unknown, {reading.unknown}"
    return f"{spec.name} {value}" if spec.per_device else value


def _is_of(name: str, spec: TunableSpec) -> bool:
    return name.startswith(f"{spec.name} ")


def _targets(options: Options) -> Targets | str:
    """The models of the config; the problem, in a sentence, when there is no reading it."""
    try:
        return targets_of(options, read_config(options))
    except ConfigError as error:
        return f"the config cannot be used: {error.problems[0]}"


def _plan_line(step: PlannedStep, held: Held | None) -> PlanLine:
    wanted: Wanted = step.wanted
    manual = tunables.manual_of(wanted.spec)
    return PlanLine(
        name=wanted.spec.name,
        step=step.kind,
        now=tuning.show_cell(step.now),
        wanted=tuning.show_cell(wanted.cell) or "",
        bound=wanted.bound,
        original=tuning.show_cell(held.original) if held is not None else None,
        reason=step.reason,
        why=manual.why,
        risk=manual.risk,
        not_when=manual.not_when,
    )


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
