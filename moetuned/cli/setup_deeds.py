"""Carries out what `moetunectl setup` planned: files in one go, then adoptions, then services. The record is on the disk before."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.api.socket_path import DEFAULT_SOCKET
from moetuned.cli.backend_adopt import adopt_unit, look_at_undo, undo_adoption
from moetuned.cli.setup_dialog import deed_words, done_words
from moetuned.decide.setup_plan import SERVICE, TELLING
from moetuned.decide.unit_adoption import AdoptionError
from moetuned.host.environment_file import forget
from moetuned.host.processes import identify
from moetuned.host.service import ServiceError
from moetuned.host.setup_record import remove_unit_state, write_record
from moetuned.host.system_file import free_backup, is_closed, read_system_bytes, remove_beside, replace_files
from moetuned.host.system_program import ProgramError, run_program
from moetuned.host.systemd_unit import DIRECTORY, reload_units, unit_status
from moetuned.schema.setup import PlannedDeed, SetupRecord, Step
from moetuned.schema.snapshot import Snapshot
from moetuned.schema.verdict import Phase

ANSWER_SECONDS = 60.0
SEEN_SECONDS = 10.0
_ACT_SECONDS = 150.0
_POLL_SECONDS = 0.2
_ASK_SECONDS = 2.0

Say = Callable[[str], None]


class DeedError(Exception):
    """A step was not done; the text is one sentence that says which and why, and what is left. `done`: the steps before it, in words."""

    def __init__(self, sentence: str, done: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.done = tuple(done)


def check_writable(deeds: Sequence[PlannedDeed]) -> None:
    """Raises DeedError where a file could not be written or removed."""
    for deed in deeds:
        if deed.step not in (Step.WRITE, Step.REMOVE):
            continue
        directory = os.path.dirname(deed.target)
        while directory != "/" and not os.path.isdir(directory):
            directory = os.path.dirname(directory)
        try:
            writable = not os.statvfs(directory).f_flag & os.ST_RDONLY and os.access(directory, os.W_OK)
        except OSError as error:
            raise DeedError(f"{directory}: {error.strerror}. Nothing was changed") from error
        if not writable:
            raise DeedError(f"{deed.target} cannot be written: {directory} is read-only. Nothing was changed")


def check_undo(deeds: Sequence[PlannedDeed]) -> None:
    """Raises DeedError where something of it would be refused; nothing has been changed then. Who is not root only looks."""
    if os.geteuid() == 0:
        check_writable(deeds)
    for deed in deeds:
        if deed.step is Step.GIVE_BACK:
            try:
                found = look_at_undo(deed.target)
                if found.before is not None and os.geteuid() == 0:
                    check_writable([PlannedDeed(Step.REMOVE, found.drop_in, "")])
            except AdoptionError as error:
                raise DeedError(f"could not {done_words(deed)}: {error}") from error


def carry_out(deeds: Sequence[PlannedDeed], record: SetupRecord, directory: str, say: Say) -> list[str]:
    """All of them, in order; what was done, in words. Raises DeedError. `directory`: where the record lies."""
    done: list[str] = []
    try:
        write_record(directory, record)
    except OSError as error:
        raise DeedError(
            f"what setup does cannot be noted ({error.filename or directory}: {error.strerror}). Nothing was changed"
        ) from error
    files = [deed for deed in deeds if deed.step in (Step.WRITE, Step.REMOVE)]
    if files:
        say("writing files")
        try:
            _replace(files)
        except OSError as error:
            raise DeedError(f"{error.filename or files[0].target}: {error.strerror}. Nothing was changed") from error
        done += map(done_words, files)
    for deed in deeds:
        if deed in files:
            continue
        say(deed_words(deed))
        try:
            _do(deed)
        except (ServiceError, AdoptionError, ProgramError) as error:
            raise DeedError(
                f"could not {deed_words(deed)}: {error}. What was done before stays; mend it and run setup again, or take all of it back: "
                "sudo moetunectl setup --undo",
                done,
            ) from error
        done.append(done_words(deed))
    stopped = {deed.target for deed in deeds if deed.step is Step.STOP_BACKEND}
    removed = {deed.target for deed in deeds if deed.step is Step.REMOVE}
    told = {deed.target for deed in deeds if deed.step in TELLING}
    left = SetupRecord(
        tuple(each for each in record.files if each not in removed),
        record.adopted,
        tuple(each for each in record.enabled if each not in stopped),
        record.directories,
        tuple(each for each in record.pending if each not in told),
    )
    if left != record:
        with contextlib.suppress(OSError):  # too much in the record harms nobody
            write_record(directory, left)
    return done


def _replace(files: Sequence[PlannedDeed]) -> None:
    """Raises OSError."""
    texts: dict[str, str | bytes | None] = {}
    closed = {deed.target for deed in files if deed.closed}
    for deed in files:
        if deed.edited:
            backup = free_backup(deed.target)
            texts[backup] = read_system_bytes(deed.target)  # also where it is no UTF-8
            if is_closed(deed.target) or deed.closed:
                closed.add(backup)
        texts[deed.target] = deed.after
    replace_files(texts, closed)


def _do(deed: PlannedDeed) -> None:
    """Raises ServiceError, AdoptionError, ProgramError."""
    match deed.step:
        case Step.ADOPT:
            adopt_unit(deed.target, deed.name, write=True)
        case Step.START_BACKEND:
            _systemctl("enable", deed.target)
            with contextlib.suppress(ProgramError):  # one that failed too often would not be started (StartLimitBurst=)
                _systemctl("reset-failed", deed.target)
            _forget_restarts(deed.target)
            _systemctl("restart", deed.target)
        case Step.RESTART_BACKEND:
            _forget_restarts(deed.target)
            _systemctl("try-restart", deed.target)
        case Step.STOP_BACKEND:
            stop_unit(deed.target)
        case Step.START_SERVICE:
            _systemctl("enable", deed.target)
            _systemctl("start", deed.target)
        case Step.RELOAD_SERVICE:
            _systemctl("reload", deed.target)


def _systemctl(verb: str, *arguments: str) -> None:
    run_program("systemctl", ("--no-ask-password", verb, *arguments), "systemd", _ACT_SECONDS)


def stop_unit(unit: str) -> None:
    """Stop and disable it, and what systemd keeps for one that is moetuned's own; one that is gone is stopped. Raises ServiceError, ProgramError."""
    if unit_status(unit).load_state == "not-found":
        return
    _systemctl("disable", "--now", unit)
    with contextlib.suppress(ProgramError):  # it did not fail
        _systemctl("reset-failed", unit)
    if unit == SERVICE:
        return
    with contextlib.suppress(OSError, ValueError):
        remove_unit_state(_name_in(unit))
    _forget_restarts(unit)


def _forget_restarts(unit: str) -> None:
    """What an earlier restart, by relief or by hand, gave it goes before its own file of variables, so before what was answered."""
    with contextlib.suppress(OSError, ValueError):
        forget(_name_in(unit), DIRECTORY)


def _name_in(unit: str) -> str:
    return unit.partition("@")[2].removesuffix(".service")


def take_back(deeds: Sequence[PlannedDeed], record: SetupRecord, state: str, say: Say) -> list[str]:
    """All that setup made, as `undo_deeds` orders it; then the record goes. Raises DeedError; the record stays then.

    What would be refused is found out before the first of them.
    """
    check_undo(deeds)
    done: list[str] = []
    for deed in deeds:
        words = done_words(deed)
        say(words)
        try:
            if deed.step is Step.REMOVE:
                replace_files({deed.target: None})
            elif deed.step is Step.GIVE_BACK:
                undo_adoption(deed.target)
            else:
                _do(deed)
        except (ServiceError, AdoptionError, ProgramError) as error:
            raise DeedError(f"could not {words}: {error}. Look at it and run this again", done) from error
        except OSError as error:
            raise DeedError(
                f"{error.filename or deed.target}: {error.strerror}. Look at it and run this again", done
            ) from error
        done.append(words)
    for path in record.files:
        with contextlib.suppress(OSError):
            remove_beside(path)
    for directory in sorted(record.directories, key=len, reverse=True):
        with contextlib.suppress(OSError):  # something else is in it
            os.rmdir(directory)
    try:
        write_record(state, SetupRecord())
    except OSError as error:
        raise DeedError(f"{error.filename or state}: {error.strerror}. All was taken back", done) from error
    with contextlib.suppress(OSError):
        reload_units()
    return done


def wait_for_daemon(names: Sequence[str], draw: Say) -> Snapshot:
    """What the daemon knows once it answers and has seen these backends run, or has been given ten seconds for that. Raises DeedError.

    One that setup has just restarted is seen once it is shown with its new process: what is published may be older than that.
    """
    client = Client(DEFAULT_SOCKET, _ASK_SECONDS)
    began = time.monotonic()
    last: Snapshot | None = None
    while True:
        draw("waiting for moetuned to answer" if last is None else "waiting for moetuned to see its backends")
        try:
            last = client.status()
            problem = ""
        except DaemonError as error:
            problem = str(error)
        waited = time.monotonic() - began
        if last is not None and not problem:
            if all_seen(last, names, lambda pid: identify(pid) is not None) or waited > SEEN_SECONDS:
                return last
        elif waited > ANSWER_SECONDS:
            raise DeedError(
                f"moetuned does not answer within {ANSWER_SECONDS:.0f} s ({problem}); see its log: journalctl -u moetuned -e"
            )
        time.sleep(_POLL_SECONDS)


def all_seen(snapshot: Snapshot, names: Sequence[str], runs: Callable[[int], bool]) -> bool:
    """Whether each of them runs, has answered and is known for what it is: a process is found before systemd has told whose it is.

    `runs`: whether a process of this pid runs now.
    """
    known = {
        each.name: each.pid for each in snapshot.backends if each.verdict.phase not in (Phase.UNKNOWN, Phase.ABSENT)
    }
    found = [each.pid for each in snapshot.backends if each.discovered]
    pids = [known.get(name) for name in names]
    return all(pid is not None and pid not in found and runs(pid) for pid in pids)
