"""One run of `moetunectl setup` from the first look to the last word, and one of `--undo`."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from typing import NoReturn

import click
import msgspec

from moetuned.cli import setup_deeds, setup_dialog
from moetuned.cli.backend_adopt import adopt_unit
from moetuned.cli.backend_client import fail, on_a_terminal, say
from moetuned.cli.progress_line import Elapsed
from moetuned.cli.setup_facts import gather
from moetuned.cli.setup_own_config import CONFIG_PATH, load_checked, overruled
from moetuned.cli.setup_wait import wait_for_units
from moetuned.cli.text_width import printable
from moetuned.cli.tune_options import print_json
from moetuned.decide.setup_config import unit_of
from moetuned.decide.setup_plan import make_plan, only_watched, undo_deeds
from moetuned.decide.setup_questions import chosen
from moetuned.decide.unit_adoption import Adoption, AdoptionError
from moetuned.host.service import ServiceError
from moetuned.host.setup_record import only_one, read_record
from moetuned.host.system_file import free_backup, read_system_file
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.setup import PlannedDeed, SetupFacts, SetupPlan, SetupRecord, SetupReport, Step, Way
from moetuned.schema.snapshot import Snapshot
from moetuned.schema.supervise import SuperviseNone
from moetuned.state.undo_journal import default_path

EXIT_NO, EXIT_USAGE, EXIT_REFUSED = 1, 2, 4


class Wanted(msgspec.Struct, frozen=True):
    """What the command line says. `given`: answers by their question's key, without the name of a backend."""

    given: dict[str, str] = {}
    models: tuple[str, ...] = ()
    yes: bool = False
    dry_run: bool = False
    replace_edited: bool = False
    as_json: bool = False

    @property
    def asks(self) -> bool:
        """Whether questions are asked."""
        return not self.yes and on_a_terminal()


def state_directory() -> str:
    """Where the record lies: the daemon's state directory."""
    return os.path.dirname(default_path(os.environ.get("MOETUNED_STATE_DIR")))


def _end(
    sentence: str, code: int, wanted: Wanted, report: SetupReport | None = None, details: str | None = None
) -> NoReturn:
    """End with one sentence, after the lines of `details`, and for programs with what is known by then as JSON."""
    lines = [] if details is None else details.splitlines()
    for line in lines:
        click.echo(line, err=True)
    if wanted.as_json:
        known = report if report is not None else SetupReport({}, (), (), SetupPlan(), dry_run=wanted.dry_run)
        print_json(msgspec.structs.replace(known, error="\n".join(map(printable, (*lines, sentence)))))
    fail(sentence, code)


def run_setup(wanted: Wanted) -> int:
    """The exit code. Ends the program where it cannot begin."""
    _check(wanted)
    with _alone(wanted):
        return _run_setup(wanted)


@contextlib.contextmanager
def _alone(wanted: Wanted) -> Iterator[None]:
    """Two that plan at one time would write over each other's record. Who only looks need not wait."""
    with contextlib.ExitStack() as held:
        if not wanted.dry_run:
            try:
                held.enter_context(only_one(state_directory()))
            except BlockingIOError:
                _end("another moetunectl setup runs; end it, or wait for it, and run this again", EXIT_REFUSED, wanted)
            except OSError as error:
                _end(f"{error.filename}: {error.strerror}. Nothing was changed", EXIT_NO, wanted)
        yield


def _run_setup(wanted: Wanted) -> int:
    facts, record = _look(wanted)
    if not wanted.as_json:
        setup_dialog.show_looked(facts, asks=wanted.asks)
    try:
        answers = _answers(facts, wanted)
        plan = _plan(facts, answers, record)
        if not wanted.as_json:
            setup_dialog.show_plan(plan)
        if not wanted.dry_run:
            plan = _without_refused(plan, wanted)
        report = SetupReport(dict(answers), facts.candidates, facts.looked, plan, dry_run=wanted.dry_run)
        _check_config(report, wanted)
        go = wanted.yes or wanted.dry_run or not plan.deeds or _confirmed("Do it?")
    except (click.Abort, KeyboardInterrupt):
        click.echo("\nNothing was written.", err=True)
        raise
    if not go:
        click.echo("Nothing was written.")
        return EXIT_NO
    for option in setup_dialog.unused(answers, wanted.given):
        click.echo(f"note: {option} was not needed here", err=True)
    if wanted.dry_run:
        if wanted.as_json:
            print_json(report)
        else:
            click.echo("Nothing was written: this was a dry run.")
        return 0
    return _carried_out(facts, report, wanted)


def _check(wanted: Wanted) -> None:
    if wanted.as_json and not (wanted.yes or wanted.dry_run):
        sentence = "--json asks nothing: add --dry-run to see the plan, or --yes to have it done. Nothing was changed"
        _end(sentence, EXIT_USAGE, wanted)
    if not wanted.yes and not wanted.dry_run and not on_a_terminal():
        fail(
            "there is nobody to ask here (no terminal): take the defaults with --yes, or see them with --dry-run",
            EXIT_USAGE,
        )
    if os.geteuid() != 0 and not wanted.dry_run:
        _end(
            "setup writes to /etc/moetuned and starts a service, so it needs root: sudo moetunectl setup. To see what it would do: moetunectl setup "
            "--dry-run. To watch as yourself, without any of it: moetuned run --state-dir ~/.local/state/moetuned",
            EXIT_REFUSED,
            wanted,
        )


def _look(wanted: Wanted) -> tuple[SetupFacts, SetupRecord]:
    progress = Elapsed(sys.stderr, "setup:")
    try:
        record = _record()
        return gather(wanted.models, record, progress.draw), record
    except ConfigError as error:
        progress.clear()
        sentence = "moetuned's config has problems; mend them first (moetunectl config check). Nothing was written"
        _end(sentence, EXIT_NO, wanted, details=str(error))
    except ValueError as error:
        progress.clear()
        _end(f"{error}. Nothing was written", EXIT_USAGE, wanted)
    except OSError as error:
        progress.clear()
        _end(f"{error.filename}: {error.strerror}; look at it. Nothing was written", EXIT_NO, wanted)
    finally:
        progress.clear()


def _record() -> SetupRecord:
    try:
        return read_record(state_directory())
    except PermissionError:  # an ordinary user, who only looks
        if os.geteuid() == 0:
            raise
        return SetupRecord()


def _answers(facts: SetupFacts, wanted: Wanted) -> dict[str, str]:
    given = dict(wanted.given)
    if wanted.models and "backend" not in given:
        paths = {os.path.realpath(path) for path in wanted.models}
        given["backend"] = ",".join(
            each.name for each in facts.candidates if each.model is not None and os.path.realpath(each.model) in paths
        )
    try:
        return setup_dialog.answers_of(facts, given, ask=wanted.asks)
    except setup_dialog.OptionError as error:
        found = SetupReport({}, facts.candidates, facts.looked, SetupPlan(), dry_run=wanted.dry_run)
        _end(f"{error}. Nothing was written", EXIT_USAGE, wanted, found)


def _plan(facts: SetupFacts, answers: Mapping[str, str], record: SetupRecord) -> SetupPlan:
    adoptions: dict[str, Adoption] = {}
    notes = []
    watched: list[str] = []
    for each in chosen(facts, answers):
        if each.way is not Way.UNIT or each.unit is None or each.named_in_config:
            continue
        try:
            found = adopt_unit(each.unit, each.name, write=False)
        except (ServiceError, AdoptionError) as error:
            if each.entry is None or isinstance(each.entry.supervise, SuperviseNone):
                notes.append(f"{each.unit} cannot be adopted, so moetuned only watches it: {error}")
                watched.append(each.name)
            else:
                notes.append(f"{each.unit} cannot be adopted, and its entry stays as it is: {error}")
            continue
        if found.after is not None and found.after != found.before:
            adoptions[each.unit] = Adoption(found.drop_in, found.after, found.settings, found.left_out)
    plan = make_plan(*only_watched(facts, answers, watched), adoptions, record)
    return msgspec.structs.replace(plan, notes=(*notes, *plan.notes))


def _without_refused(plan: SetupPlan, wanted: Wanted) -> SetupPlan:
    """Without files that were edited and are not to be replaced; each is asked about by its name."""
    deeds: list[PlannedDeed] = []
    notes = list(plan.notes)
    for deed in plan.deeds:
        if deed.edited and not _may_replace(deed, wanted):
            note = f"{deed.target} was edited since setup wrote it and stays as it is; to replace it: --replace-edited"
            notes.append(note)
            click.echo(f"note: {note}", err=True)
            continue
        deeds.append(deed)
    if len(deeds) < len(plan.deeds) and not any(deed.step in (Step.WRITE, Step.REMOVE) for deed in deeds):
        deeds = [deed for deed in deeds if deed.step not in (Step.RELOAD_SERVICE, Step.RESTART_BACKEND)]
    return msgspec.structs.replace(plan, deeds=tuple(deeds), notes=tuple(notes))


def _may_replace(deed: PlannedDeed, wanted: Wanted) -> bool:
    if not wanted.asks:
        return wanted.replace_edited
    return bool(
        click.confirm(
            f"{deed.target} was edited since setup wrote it. Replace it (it is kept as {free_backup(deed.target)})?",
            default=False,
        )
    )


def _check_config(report: SetupReport, wanted: Wanted) -> None:
    """The whole config as it will be, by the checks of the daemon, before anything is written."""
    for deed in report.plan.deeds:
        if deed.target == CONFIG_PATH:
            try:
                load_checked({CONFIG_PATH: deed.after})
                lost = overruled(deed.after) if deed.after is not None else ()
            except ConfigError as error:
                sentence = "moetuned would not start with this config. Nothing was written"
                _end(sentence, EXIT_NO, wanted, report, str(error))
            for key, path in lost[:1]:
                directory, name = os.path.split(path)
                sentence = (
                    f"{path} is read after {CONFIG_PATH}, so what it says under {key} would count and your answers would not. Let it be read "
                    f"before: mv {path} {directory}/40-{name}. Then run setup again. Nothing was written"
                )
                _end(sentence, EXIT_NO, wanted, report)


def _confirmed(question: str) -> bool:
    return bool(click.confirm(question, default=True))


def _carried_out(facts: SetupFacts, report: SetupReport, wanted: Wanted) -> int:
    quiet = wanted.as_json
    progress = Elapsed(sys.stderr, "setup:")
    plan = report.plan
    failed: dict[str, str] = {}
    try:
        if plan.deeds:
            setup_deeds.check_writable(plan.deeds)
            done = setup_deeds.carry_out(
                plan.deeds, plan.record, state_directory(), lambda _: None if quiet else progress.draw(_)
            )
            report = msgspec.structs.replace(report, done=tuple(done))
        failed = wait_for_units(_own_units(facts, report.answers), progress.draw)
        not_done = {setup_dialog.done_words(deed) for deed in plan.deeds if deed.target in failed}
        report = msgspec.structs.replace(report, done=tuple(words for words in report.done if words not in not_done))
        progress.clear()
        if not quiet:
            for words in report.done:
                say(f"done: {words}")
        if failed:
            _end(_failed_words(failed), EXIT_NO, wanted, report)
        snapshot = None
        if facts.systemd and facts.service.installed:
            names = [each.name for each in chosen(facts, report.answers)]
            snapshot = setup_deeds.wait_for_daemon(names, progress.draw)
            progress.clear()
    except setup_deeds.DeedError as error:
        progress.clear()
        _end(str(error), EXIT_NO, wanted, msgspec.structs.replace(report, done=report.done or error.done))
    if snapshot is not None:
        report = msgspec.structs.replace(report, status=_headline(snapshot))
    if wanted.as_json:
        print_json(report)
    else:
        _show_end(facts, snapshot)
    return 0


def _own_units(facts: SetupFacts, answers: Mapping[str, str]) -> tuple[str, ...]:
    """Units of models that were chosen, those that ran already, too: "nothing to do" is not said of one that does not stay up."""
    if not facts.systemd or not facts.service.template:
        return ()
    return tuple(unit_of(each.name) for each in chosen(facts, answers) if each.way is Way.CREATED)


def _failed_words(failed: Mapping[str, str]) -> str:
    logs = ", ".join(f"journalctl -u {unit} -e" for unit in failed)
    return f"{'; '.join(failed.values())}. See {logs}. What was done stays; mend it and run setup again, or take all of it back: sudo moetunectl setup --undo"


def _headline(snapshot: Snapshot) -> str:
    from moetuned.decide.headline import headlines

    return headlines(snapshot, time.time())[0].text


def _show_end(facts: SetupFacts, snapshot: Snapshot | None) -> None:
    if snapshot is not None:
        from moetuned.cli.status_view import render
        from moetuned.cli.terminal import wants_colour

        columns = min(shutil.get_terminal_size().columns, 120)
        colour = wants_colour()
        click.echo()
        click.echo(render(snapshot, columns, colour, time.time(), whole=True), nl=False, color=True if colour else None)
        click.echo()
        say(
            "Next: moetunectl status --watch while you use the model. What would be done when memory runs out: moetunectl relief plan."
        )
    elif not facts.systemd:
        say("Next: run moetuned with sudo moetuned run, then moetunectl status.")
    else:
        say("Next: moetunectl status.")
    say("To change an answer run setup again; to take all of it back: sudo moetunectl setup --undo.")


def run_undo(wanted: Wanted) -> int:
    """The exit code."""
    if wanted.given or wanted.models:
        _end("--undo takes no answers", EXIT_USAGE, wanted)
    _check(wanted)
    with _alone(wanted):
        return _run_undo(wanted)


def _run_undo(wanted: Wanted) -> int:
    record, plan, kept = _look_back(wanted)
    report = SetupReport({}, (), (), plan, dry_run=wanted.dry_run)
    nothing = not plan.deeds and not kept and record == SetupRecord()
    if nothing and not wanted.as_json:
        click.echo("Nothing to take back: setup has made nothing here.")
        return 0
    if not wanted.as_json:
        setup_dialog.show_plan(plan)
    try:
        setup_deeds.check_undo(plan.deeds)
    except setup_deeds.DeedError as error:
        _end(str(error), EXIT_NO, wanted, report)
    if nothing or wanted.dry_run:
        print_json(report) if wanted.as_json else click.echo("Nothing was changed: this was a dry run.")
        return 0
    if not wanted.yes and not _confirmed("Take it back?"):
        click.echo("Nothing was changed.")
        return EXIT_NO
    return _taken_back(record, report, kept, wanted)


def _look_back(wanted: Wanted) -> tuple[SetupRecord, SetupPlan, tuple[str, ...]]:
    """What setup made, what takes it back, and the files that stay."""
    try:
        record = _record()
        texts = {path: text for path in (CONFIG_PATH, *record.files) if (text := read_system_file(path)) is not None}
    except ValueError as error:
        _end(f"{error}. Nothing was changed", EXIT_NO, wanted)
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}; look at it. Nothing was changed", EXIT_NO, wanted)
    deeds, kept = undo_deeds(record, texts, CONFIG_PATH, service_active=_service_runs())
    notes = tuple(f"{path} was edited since setup wrote it, and stays" for path in kept)
    return record, SetupPlan(deeds, record, notes), kept


def _taken_back(record: SetupRecord, report: SetupReport, kept: tuple[str, ...], wanted: Wanted) -> int:
    progress = Elapsed(sys.stderr, "setup:")
    try:
        done = setup_deeds.take_back(report.plan.deeds, record, state_directory(), progress.draw)
    except setup_deeds.DeedError as error:
        progress.clear()
        _end(str(error), EXIT_NO, wanted, msgspec.structs.replace(report, done=error.done))
    progress.clear()
    if wanted.as_json:
        print_json(msgspec.structs.replace(report, done=tuple(done)))
        return 0
    for words in done:
        say(f"done: {words}")
    for path in kept:
        say(f"kept: {path}, which was edited; remove it by hand if you do not need it")
    return 0


def _service_runs() -> bool:
    from moetuned.decide.setup_plan import SERVICE
    from moetuned.host.systemd_booted import is_booted
    from moetuned.host.systemd_unit import unit_status

    with contextlib.suppress(ServiceError):
        return is_booted() and unit_status(SERVICE).active_state in ("active", "reloading")
    return False
