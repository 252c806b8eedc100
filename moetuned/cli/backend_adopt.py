"""`moetunectl backend adopt`: lets moetuned give a unit of systemd a shorter context, by a drop-in that is shown, written and taken away."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence

import click
import msgspec

from moetuned import backends
from moetuned.cli.tune_options import EXIT_NO, EXIT_REFUSED, EXIT_USAGE, fail, print_json, print_table, print_wrapped
from moetuned.decide.persist import preview
from moetuned.decide.unit_adoption import (
    Adoption,
    AdoptionError,
    Kind,
    Setting,
    drop_in_path,
    environment_path,
    made_directory,
    plan_adoption,
    undo_words,
)
from moetuned.host import processes
from moetuned.host.environment_file import forget
from moetuned.host.fs import RealFS
from moetuned.host.service import ServiceError
from moetuned.host.systemd_unit import DIRECTORY, SystemdUnit, is_service, reload_units, unit_files, unit_status
from moetuned.host.unit_drop_in import read_drop_in, remove_drop_in, write_drop_in
from moetuned.parse.environment_file import parse_environment_file
from moetuned.parse.persisted_file import Standing, standing
from moetuned.parse.unit_file import parse_unit_file
from moetuned.parse.unit_status import UnitStatus
from moetuned.schema.persisted import FileChange, FileStep, LeftOut

_LEAST_CONTEXT = 256
_USUAL_MINIMUM = 2048
_VARIABLES_BYTES = 64 << 10
_TYPED = re.compile(r"\.(automount|device|mount|path|scope|service|slice|socket|swap|target|timer)$")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class AdoptReport(msgspec.Struct, frozen=True):
    """JSON of the command. `done` False: only shown. `config`: the entry for moetuned.yaml. `unread`: files of the unit's variables that could
    not be read, and why: what they say is not in `settings`.
    """

    unit: str
    name: str
    done: bool
    drop_in: str
    before: str | None = None
    after: str | None = None
    settings: tuple[Setting, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    config: str | None = None
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


@click.command(
    name="adopt",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl backend adopt llama.service\n  sudo moetunectl backend adopt llama.service --name glm --write\n"
    "  moetunectl backend adopt --undo --dry-run llama.service\n  sudo moetunectl backend adopt --undo llama.service",
)
@click.argument("unit")
@click.option("--name", metavar="NAME", help="The backend's name in moetuned's config. [of the unit]")
@click.option("--write", "write", is_flag=True, help="Write the drop-in; without this it is only shown.")
@click.option("--undo", "undo", is_flag=True, help="Take away the drop-in that --write wrote.")
@click.option("--dry-run", is_flag=True, help="With --undo: only look whether it can be taken away.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
def subcommand(*, unit: str, name: str | None, write: bool, undo: bool, dry_run: bool, as_json: bool) -> None:
    """Let moetuned restart UNIT, a service that runs a backend, with a shorter context when memory nears its limit.

    Shows a drop-in that makes the unit take its context, and what else it can, from a file that moetuned writes. The unit is not
    restarted: the drop-in counts from its next start on, and starts it as now while moetuned says nothing else. Exits 4 for a unit
    that cannot be changed so with certainty, and says what to do by hand.
    """
    unit = unit if _TYPED.search(unit) else f"{unit}.service"
    name = name or name_of_unit(unit)
    _check_words(unit, name, write=write, undo=undo, dry_run=dry_run)
    try:
        if undo:
            report = look_at_undo(unit) if dry_run else undo_adoption(unit)
        else:
            report = adopt_unit(unit, name, write=write)
    except ServiceError as error:
        fail(f"{error}", EXIT_NO)
    except AdoptionError as error:
        fail(f"{error}", EXIT_REFUSED)
    if as_json:
        print_json(report)
    elif undo:
        _show_undone(report)
    else:
        _show(report)
    for note in report.notes:
        click.echo(f"note: {note}", err=True)
    if report.notes:
        sys.exit(EXIT_NO)


def _check_words(unit: str, name: str, *, write: bool, undo: bool, dry_run: bool) -> None:
    """Ends the program for a call that makes no sense or is not this user's to make."""
    if not is_service(unit):
        fail(f"{unit} is no service of systemd; name one, e.g. llama.service", EXIT_USAGE)
    if write and undo:
        fail("--write and --undo are not for one call", EXIT_USAGE)
    if dry_run and not undo:
        fail("--dry-run is for --undo; without --write nothing is written", EXIT_USAGE)
    if not _NAME.fullmatch(name):
        fail(f"{name} is no name of a backend: letters, digits, points, hyphens and underscores", EXIT_USAGE)
    if (write or undo) and not dry_run and os.geteuid() != 0:
        fail("changing a unit needs root; run this with sudo", EXIT_REFUSED)


def name_of_unit(unit: str) -> str:
    """A name made of the unit's: of a template's instance its own."""
    stem = unit.removesuffix(".service")
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem.rpartition("@")[2]).strip("-._")[:63]


def _find(argv: Sequence[str]) -> Kind | None:
    kind = backends.find(argv)
    return None if kind is None else Kind(kind.NAME, kind.SETTINGS)


def _plan(
    unit: str, name: str, status: UnitStatus, path: str, before: str | None, files_say: Mapping[str, str]
) -> Adoption:
    """Raises ServiceError, AdoptionError."""
    if status.load_state != "loaded":
        raise ServiceError(f"systemd has no unit {unit} that it can start ({status.load_state})")
    if status.needs_reload:
        raise AdoptionError(
            f"files of {unit} have changed since systemd read them: look at them, run systemctl daemon-reload and try again"
        )
    makes_directory = not os.path.isdir(os.path.dirname(path)) if before is None else made_directory(before)
    return plan_adoption(
        unit,
        name,
        unit_files(status, RealFS()),
        _find,
        DIRECTORY,
        status.environment_files,
        files_say=files_say,
        makes_directory=makes_directory,
    )


def _owners_variables(name: str, status: UnitStatus) -> tuple[dict[str, str], tuple[str, ...]]:
    """What the files of variables that the unit's owner wrote say, and those that cannot be read, with the reason."""
    found: dict[str, str] = {}
    unread = []
    for path in status.environment_files:
        if path == environment_path(name, DIRECTORY):
            continue
        try:
            found |= parse_environment_file(RealFS().read_text(path, _VARIABLES_BYTES))
        except FileNotFoundError:
            continue  # one that need not be there, or the unit does not start
        except (OSError, ValueError) as error:
            unread.append(f"{path}: {error.strerror if isinstance(error, OSError) else error}")
    return found, tuple(unread)


def _drop_in(unit: str) -> tuple[str, str | None]:
    """Path and text of the drop-in. Raises AdoptionError where it cannot be trusted."""
    path = drop_in_path(unit)
    try:
        return path, read_drop_in(path)
    except OSError as error:
        raise AdoptionError(
            f"{error.filename or path}: {error.strerror or error}; look at it. Nothing was changed"
        ) from error


def adopt_unit(unit: str, name: str, *, write: bool) -> AdoptReport:
    """Plan the drop-in of `unit` as the backend `name`, and write it where `write` says so. Raises ServiceError, AdoptionError."""
    path, before = _drop_in(unit)
    if before is not None and (problem := _not_ours(unit, path, before)):
        raise AdoptionError(problem)
    status = unit_status(unit)
    files_say, unread = _owners_variables(name, status)
    plan = _plan(unit, name, status, path, before, files_say)
    done = write and plan.text is not None and plan.text != before
    notes: list[str] = []
    if done:
        assert plan.text is not None
        _write(path, before, plan.text)
        if missing := {each.name for each in plan.settings} - SystemdUnit(name, unit).settable():
            notes.append(f"systemd has read the drop-in, but {unit} does not take {', '.join(sorted(missing))} from it")
    context = _context_now(status, plan)
    return AdoptReport(
        unit,
        name,
        done,
        path,
        before,
        plan.text,
        plan.settings,
        plan.left_out,
        _entry(unit, name, context),
        tuple(notes),
        unread,
    )


def _write(path: str, before: str | None, text: str) -> None:
    """The drop-in, read by systemd; both or neither. Raises ServiceError."""
    try:
        write_drop_in(path, text)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror or error}. Nothing was changed") from error
    try:
        reload_units()
    except OSError as error:
        if before is None:
            remove_drop_in(path)
        else:
            write_drop_in(path, before)
        raise ServiceError(f"{error.strerror}; {path} is as it was before") from error


def _not_ours(unit: str, path: str, text: str) -> str | None:
    """Why a drop-in may not be touched; None where it is as moetuned wrote it."""
    match standing(text, undo_words(unit)):
        case Standing.OURS:
            return None
        case Standing.EDITED:
            return f"{path} was edited since moetuned wrote it"
    return f"{path} was not written by moetuned"


def look_at_undo(unit: str) -> AdoptReport:
    """What `undo_adoption` would take away; changes nothing. Raises AdoptionError where it would be refused; one that was edited is shown
    on standard error.
    """
    path, before = _drop_in(unit)
    name = _name_in(before)
    if before is not None and (problem := _not_ours(unit, path, before)):
        _show_edits(unit, name, path, before)
        raise AdoptionError(
            f"{problem}; remove it by hand if you do not need it, and run systemctl daemon-reload. Nothing was changed"
        )
    return AdoptReport(unit, name, done=False, drop_in=path, before=before)


def undo_adoption(unit: str) -> AdoptReport:
    """Take the drop-in of `unit` away. Raises ServiceError, AdoptionError; one that was edited is shown on standard error."""
    found = look_at_undo(unit)
    path, name, before = found.drop_in, found.name, found.before
    if before is None:
        return found
    try:
        remove_drop_in(path)
    except OSError as error:
        raise ServiceError(f"{path} cannot be removed: {error.strerror or error}") from error
    notes: list[str] = []
    try:
        reload_units()
    except OSError as error:
        notes.append(f"{error.strerror}; until it is, {unit} starts as if the drop-in were still there")
    try:
        if name:
            forget(name, DIRECTORY)
    except OSError as error:
        notes.append(
            f"{environment_path(name, DIRECTORY)} cannot be removed: {error.strerror}; nothing reads it any more"
        )
    return AdoptReport(unit, name, done=True, drop_in=path, before=before, notes=tuple(notes))


def _name_in(text: str | None) -> str:
    """The backend's name in a drop-in of moetuned's; "" where there is none."""
    for line in parse_unit_file(text or ""):
        path = line.value.removeprefix("-")
        if line.key == "EnvironmentFile" and path.startswith(f"{DIRECTORY}/") and path.endswith(".env"):
            name = path.removeprefix(f"{DIRECTORY}/").removesuffix(".env")
            return name if _NAME.fullmatch(name) else ""
    return ""


def _show_edits(unit: str, name: str, path: str, text: str) -> None:
    """How an edited drop-in differs from what would be written now; nothing where that cannot be told."""
    try:
        name, status = name or name_of_unit(unit), unit_status(unit)
        plan = _plan(unit, name, status, path, text, _owners_variables(name, status)[0])
    except (ServiceError, AdoptionError):
        return
    click.echo(preview(FileChange(path, FileStep.REFUSED, plan.text, text)), err=True)


def _context_now(status: UnitStatus, plan: Adoption) -> int | None:
    """What the unit says, which is what its owner wants; else what its process has. None where neither tells."""
    by_unit = next((each.now[0] for each in plan.settings if each.name == "context"), None)
    if by_unit is not None and re.fullmatch(r"[1-9][0-9]{0,8}", by_unit):
        return int(by_unit)
    argv = None if status.main_pid is None else processes.command_line(status.main_pid)
    kind = backends.find(argv) if argv else None
    if kind is None or argv is None or status.main_pid is None:
        return None
    return kind.describe(argv, processes.variables(status.main_pid, kind.VARIABLES)).context_length


def _entry(unit: str, name: str, context: int | None) -> str:
    lines = ["backends:", f"  - name: {name}", f"    supervise: {{by: systemd, unit: {unit}}}"]
    if context is not None and context >= _LEAST_CONTEXT:
        minimum = f", minimum: {context}" if context < _USUAL_MINIMUM else ""
        lines.append(f"    context: {{preferred: {context}{minimum}}}")
    return "\n".join(lines) + "\n"


def _show(report: AdoptReport) -> None:
    if report.after is None:
        click.echo(f"{report.unit} takes what a restart may change from moetuned already: its owner wrote it so.\n")
    elif text := preview(FileChange(report.drop_in, FileStep.WRITE, report.before, report.after)):
        click.echo(text + "\n")
    nothing = "not known" if report.unread else "not said"
    print_table(
        ("A RESTART CAN CHANGE", "NOW", "HOW"),
        [
            (each.name, " and ".join(dict.fromkeys(now or nothing for now in each.now)), each.how)
            for each in report.settings
        ],
    )
    if report.unread:
        click.echo("\nNot read, so what they say is not known:")
        for unread in report.unread:
            print_wrapped(unread)
    if report.left_out:
        click.echo("\nNot to be changed:")
        for left_out in report.left_out:
            print_wrapped(f"{left_out.name}: {left_out.reason}")
    click.echo(f"\nFor /etc/moetuned/moetuned.yaml:\n\n{report.config}")
    if report.done:
        click.echo(
            f"{report.drop_in}: written, and read by systemd. {report.unit} was not restarted: it counts from its next start on "
            f"(sudo systemctl restart {report.unit}, when it suits you)."
        )
    elif report.after == report.before and report.after is not None:
        click.echo(f"{report.drop_in}: written already.")
    elif report.after is not None:
        name = "" if report.name == name_of_unit(report.unit) else f" --name {report.name}"
        click.echo(f"Nothing was written. To write it: sudo moetunectl backend adopt {report.unit}{name} --write")


def _show_undone(report: AdoptReport) -> None:
    if report.before is None:
        click.echo(f"Nothing to take away: there is no {report.drop_in}.")
        return
    if not report.done:
        click.echo(f"{report.drop_in}: can be removed. Nothing was changed: this was a dry run.")
        return
    click.echo(
        f"{report.drop_in}: removed. {report.unit} was not restarted; from its next start on it is as its own files say."
    )
    click.echo(f"Take `supervise:` of {report.name or 'its backend'} out of moetuned's config, too.")
