"""`moetunectl tune`: kernel settings seen, applied, checked and given back, without the daemon.

Uses the daemon's own undo journal, so what one applies the other can give back. While a daemon holds the journal, `plan`,
`verify` and `explain` only look, and `apply` and `rollback` are refused.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from moetuned import tunables
from moetuned.host.block_devices import device_number
from moetuned.host.config_files import DEFAULT_PATH, load_files
from moetuned.host.fs import RealFS
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.config import Config, Profile, Tuning
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import PlannedStep, StepKind, Tunable, TunableSpec
from moetuned.state import tuning
from moetuned.state.undo_journal import Held, JournalError, default_path, open_journal, read_boot_id, read_journal

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_REFUSED = 4
_NOTHING_HELD = "Nothing to give back: moetuned holds no setting."
_IN_ORDER = frozenset({"applied", "already", "adjusted", "skipped", "restored"})

_Command = TypeVar("_Command", bound=Callable[..., None])


class Options(msgspec.Struct, frozen=True):
    """What every subcommand takes."""

    as_json: bool
    root: str
    journal: str
    config: str | None = None
    profile: str | None = None


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
    original: str | None
    reason: str
    why: str
    not_when: str


class PlanReport(msgspec.Struct, frozen=True):
    """JSON of the plan."""

    profile: str
    steps: tuple[PlanLine, ...]
    notes: tuple[str, ...] = ()


@click.group(
    name="tune",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl tune plan --profile moe-offload\n  sudo moetunectl tune apply\n"
    "  moetunectl tune explain vm.dirty_ratio\n  sudo moetunectl tune rollback",
)
def command() -> None:
    """Set the machine up for models larger than RAM, and give it back exactly as it was."""


def _places(function: _Command) -> _Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs."),
        click.option(
            "--root", default="/", type=click.Path(file_okay=False), help="Look at a tree of files instead of /."
        ),
        click.option(
            "--journal",
            type=click.Path(dir_okay=False),
            help="Undo journal, in a directory of its own. [undo.jsonl in $MOETUNED_STATE_DIR or /var/lib/moetuned]",
        ),
    ):
        function = option(function)
    return function


def _wishes(function: _Command) -> _Command:
    for option in (
        click.option("--config", type=click.Path(), help=f"Config file. [{DEFAULT_PATH} and conf.d beside it]"),
        click.option(
            "--profile",
            type=click.Choice([profile.value for profile in Profile]),
            help="Instead of the config's profile.",
        ),
    ):
        function = option(function)
    return function


@command.command()
@_wishes
@_places
def plan(**values: Any) -> None:
    """Say what apply would do, and why; change nothing."""
    options = _options(values)
    wanted, steps = _steps(options)
    held, notes = _look(options)
    lines = tuple(_plan_line(step, held.get(step.wanted.spec.name)) for step in steps)
    if options.as_json:
        _print_json(PlanReport(wanted.profile.value, lines, notes))
        return
    _print_table(
        ("SETTING", "NOW", "WANTED", "STEP", "BECAUSE OF"),
        [
            (
                line.name,
                f"{line.now or '?'}{f' (was {line.original})' if line.original is not None else ''}",
                line.wanted,
                line.step.value,
                line.reason,
            )
            for line in lines
        ],
        [f"{line.why} Not when: {line.not_when}" for line in lines],
    )
    if not lines:
        click.echo(f"Nothing to set: profile {wanted.profile.value}. Try --profile {Profile.MOE_OFFLOAD.value}.")
    _print_notes(notes)


@command.command()
@_wishes
@_places
def apply(**values: Any) -> None:
    """Write the settings of the config's profile. Exits 1 if one could not be set or somebody else has changed it."""
    options = _options(values)
    _require_root(options)
    _, steps = _steps(options)
    fs = RealFS(options.root)
    if not steps and not os.path.exists(options.journal):
        _finish(options, (), (), "Nothing to set.")
    try:
        with open_journal(options.journal, read_boot_id(fs)) as journal:
            views = tuning.apply(fs, journal, steps)
            notes = journal.notes
    except JournalError as error:
        _fail(str(error), EXIT_REFUSED)
    _finish(options, views, notes, "Nothing to set.")


@command.command()
@_wishes
@_places
def verify(**values: Any) -> None:
    """Compare the settings with what they should be. Exits 1 if one is not as wanted."""
    options = _options(values)
    _, steps = _steps(options)
    held, notes = _look(options)
    _finish(options, tuning.verify(RealFS(options.root), held, steps), notes, "Nothing to check.")


@command.command()
@_places
def rollback(**values: Any) -> None:
    """Give every setting back as it was. What somebody else has changed since is reported and left alone."""
    options = _options(values)
    _require_root(options)
    fs = RealFS(options.root)
    if not os.path.isdir(os.path.dirname(options.journal)):
        _finish(options, (), (), _NOTHING_HELD)
    try:
        with open_journal(options.journal, read_boot_id(fs)) as journal:
            problems = journal.problems
            notes = (*journal.notes, *problems)
            views = tuning.rollback(fs, journal)
    except JournalError as error:
        _fail(str(error), EXIT_REFUSED)
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
@_places
def explain(key: str | None, **values: Any) -> None:
    """Say what a setting does, why moetuned sets it and when not to; without KEY, list all."""
    options = _options(values)
    if key is None:
        chosen = [tunables.load(name) for name in tunables.module_names()]
    else:
        found = tunables.find(key)
        if found is None:
            known = ", ".join(tunables.load(name).spec.name for name in tunables.module_names())
            _fail(f"{key}: moetuned does not know this setting; it knows {known}", EXIT_USAGE)
        chosen = [found]
    held, notes = _look(options)
    fs = RealFS(options.root)
    models = _models(options) if any(tunable.spec.per_device for tunable in chosen) else ()
    entries = [_explained(options, fs, tunable, held, models) for tunable in chosen]
    if options.as_json:
        _print_json(entries)
        return
    for number, entry in enumerate(entries):
        click.echo(("\n" if number else "") + f"{entry['name']}: {entry['summary']}")
        for label, text in entry.items():
            if label not in ("name", "summary") and text is not None:
                _print_wrapped(f"{label.replace('_', ' ')}: {text}")
    _print_notes(notes)


def _explained(
    options: Options, fs: RealFS, tunable: Tunable, held: dict[str, Held], models: tuple[str, ...] | str
) -> dict[str, str | None]:
    spec, manual = tunable.spec, tunable.manual
    if spec.per_device and isinstance(models, str):
        now = f"unknown, {models}"
    else:
        found = tunables.instances(fs, tunable, () if isinstance(models, str) else models, _device_of(options))
        now = "; ".join(_now(fs, each) for each in found)
    if spec.per_device:
        originals = [f"{name} {tuning.show_cell(entry.original)}" for name, entry in held.items() if _is_of(name, spec)]
    else:
        originals = [f"{tuning.show_cell(held[spec.name].original)}"] if spec.name in held else []
    wanted = ", ".join(f"{value} in {profile}" for profile, value in sorted(spec.wanted.items()))
    return {
        "name": spec.name,
        "summary": manual.summary,
        "why": manual.why,
        "not_when": manual.not_when,
        "side_effect": manual.side_effect or None,
        "source": manual.source,
        "wanted": wanted or None,
        "now": now or "unknown, no backend of the config has a model",
        "original": "; ".join(originals) or None,
        "file": " or ".join(path for path in (spec.place.path, spec.place.twin_path) if path is not None),
        "config_key": spec.config_key + (f" or tuning.sysctl.{spec.twin.name}" if spec.twin is not None else ""),
    }


def _now(fs: RealFS, spec: TunableSpec) -> str:
    reading = tunables.read_instance(fs, spec)
    value = tuning.show_cell(reading.cell) or f"unknown, {reading.unknown}"
    return f"{spec.name} {value}" if spec.per_device else value


def _is_of(name: str, spec: TunableSpec) -> bool:
    return name.startswith(f"{spec.name} ")


def _models(options: Options) -> tuple[str, ...] | str:
    """The models of the config; the problem, in a sentence, when there is no reading it."""
    try:
        return tunables.models_of(_config(options))
    except ConfigError as error:
        return f"the config cannot be used: {error.problems[0]}"


def _options(values: dict[str, Any]) -> Options:
    root = os.path.abspath(values["root"])
    path = values["journal"]
    if path is None:
        path = default_path(os.environ.get("MOETUNED_STATE_DIR")) if root == "/" else root + default_path(None)
    return Options(values["as_json"], root, os.path.abspath(path), values.get("config"), values.get("profile"))


def _config(options: Options) -> Config:
    """Raises ConfigError."""
    default = DEFAULT_PATH if options.root == "/" else options.root + DEFAULT_PATH
    return load_files(options.config, tunables.known_sysctls(), default).config


def _device_of(options: Options) -> Callable[[str], tuple[int, int]]:
    """Device numbers of files as the machine whose root is looked at names them."""
    return device_number if options.root == "/" else lambda path: device_number(options.root + path)


def _steps(options: Options) -> tuple[Tuning, tuple[PlannedStep, ...]]:
    try:
        config = _config(options)
    except ConfigError as error:
        _fail(str(error), EXIT_USAGE)
    wanted = config.tuning
    if options.profile is not None:
        wanted = msgspec.structs.replace(wanted, profile=Profile(options.profile))
    models = tunables.models_of(config)
    steps, problems = tunables.plan_tuning(RealFS(options.root), wanted, models, _device_of(options))
    if problems:
        _fail("\n".join(problems), EXIT_USAGE)
    return wanted, steps


def _look(options: Options) -> tuple[dict[str, Held], tuple[str, ...]]:
    """What the journal holds, without taking it; that it cannot be read is a note."""
    try:
        contents = read_journal(options.journal, read_boot_id(RealFS(options.root)))
    except JournalError as error:
        return {}, (f"{error}; originals are not known here",)
    return contents.held, (*contents.notes, *contents.problems)


def _require_root(options: Options) -> None:
    if options.root == "/" and os.geteuid() != 0:
        _fail("changing kernel settings needs root; run this with sudo", EXIT_REFUSED)


def _plan_line(step: PlannedStep, held: Held | None) -> PlanLine:
    spec = step.wanted.spec
    found = tunables.find(spec.name)
    return PlanLine(
        name=spec.name,
        step=step.kind,
        now=tuning.show_cell(step.now),
        wanted=tuning.show_cell(step.wanted.cell) or "",
        original=tuning.show_cell(held.original) if held is not None else None,
        reason=step.reason,
        why=found.manual.why if found is not None else "",
        not_when=found.manual.not_when if found is not None else "",
    )


def _finish(
    options: Options, views: tuple[TunableView, ...], notes: tuple[str, ...], empty: str, *, ok: bool | None = None
) -> NoReturn:
    if ok is None:
        ok = all(view.state in _IN_ORDER for view in views)
    if options.as_json:
        _print_json(Report(ok, views, notes))
    else:
        _print_table(
            ("SETTING", "NOW", "WANTED", "ORIGINAL", "STATE", ""),
            [
                (view.name, view.now or "?", view.wanted or "", view.original or "", view.state, view.detail)
                for view in views
            ],
        )
        if not views:
            click.echo(empty)
        _print_notes(notes)
    sys.exit(0 if ok else EXIT_NO)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[str] = ()) -> None:
    if not rows:
        return
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header) - 1)]
    for number, row in enumerate((header, *rows)):
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        click.echo("  ".join([*cells, row[-1]]).rstrip())
        if number and below:
            _print_wrapped(below[number - 1])


def _print_wrapped(text: str) -> None:
    width = max(40, min(shutil.get_terminal_size().columns, 110))
    click.echo(textwrap.fill(text, width, initial_indent="    ", subsequent_indent="    "))


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _print_json(value: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"moetunectl: {message}", err=True)
    sys.exit(code)
