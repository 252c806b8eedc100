"""A setting changed for the moment in which something is opened, and put back at once.

Some values are copied by the kernel when a file is opened (read-ahead). To measure with another value it has to stand there for
that moment only: a few microseconds, between two writes. It has an undo journal of its own, in a directory below the
daemon's, so that it works beside a running daemon, which holds the other one: the original is on disk before the first write, and what a
process left that was killed in between is put back by the next one, or by `give_back`. Whoever applies, checks or gives back the other
settings asks for that first: what a measurement left is nobody's wish, and what it has borrowed for the moment is no drift.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from moetuned.host.durable_file import make_private_directory
from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import describe_error, read_tunable, write_tunable
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Cell, Place
from moetuned.state import tuning
from moetuned.state.tuning_views import held_view
from moetuned.state.undo_journal import (
    FILE_NAME,
    Held,
    JournalBusyError,
    JournalError,
    UndoJournal,
    is_held,
    open_journal,
    read_journal,
)

DIRECTORY = "readahead"
_Opened = TypeVar("_Opened")
_DEFERRED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)
LEFT = "a measurement that was killed left it; the next apply or rollback, or the daemon, gives it back"
BORROWED = "a measurement has borrowed it for a moment"


class BorrowError(Exception):
    """The setting cannot be changed for a moment; the text is one sentence. It is as it was."""


def journal_path(main_journal: str) -> str:
    """Path of the journal of borrowed settings that belongs to the undo journal `main_journal`."""
    return os.path.join(os.path.dirname(main_journal), DIRECTORY, FILE_NAME)


def open_borrowed(main_journal: str, boot_id: str) -> UndoJournal:
    """Take the journal of borrowed settings, the directory of `main_journal` made for it. Raises as `open_journal` does."""
    try:
        make_private_directory(os.path.dirname(main_journal))
    except OSError as error:
        raise JournalError(f"{main_journal} needs its directory: {error.strerror or error}") from error
    return open_journal(journal_path(main_journal), boot_id)


class Borrowed(msgspec.Struct, frozen=True):
    """Settings that hold a borrowed value now. `alive`: the measurement runs, and gives them back by itself."""

    held: tuple[Held, ...] = ()
    alive: bool = False


def look(fs: HostFS, main_journal: str, boot_id: str) -> Borrowed:
    """What stands borrowed; changes nothing. Raises JournalError when the journal cannot be read or is damaged."""
    path = journal_path(main_journal)
    if not os.path.exists(path):
        return Borrowed()
    alive = is_held(path)
    contents = read_journal(path, boot_id)
    if contents.problems and not alive:
        raise JournalError(_damaged(contents.problems[0]))
    stand = (
        entry for entry in contents.held.values() if read_tunable(fs, entry.place).cell not in (None, entry.original)
    )
    return Borrowed(tuple(stand), alive)


def explain(
    views: Iterable[TunableView], held: Iterable[Held], borrowed: Borrowed, previous: Iterable[TunableView] = ()
) -> tuple[TunableView, ...]:
    """Views in which what is borrowed is not taken for somebody's change: each such setting has one that says so.

    `held` are the settings of the other journal, `previous` the views before: they go on counting while a measurement runs.
    """
    names = {entry.place.path: entry.tunable for entry in held}
    lent = {names.get(entry.place.path, entry.tunable): entry for entry in borrowed.held}
    before = {view.name: view for view in previous}
    found = {view.name: view for view in views}
    for name, entry in lent.items():
        if borrowed.alive:
            known = before.get(name) or held_view(entry, "applied", entry.original, BORROWED)
            if name in found:
                found[name] = known
        elif name in found:
            found[name] = msgspec.structs.replace(found[name], state="planned", detail=LEFT)
        else:
            view = held_view(entry, "planned", entry.intended, LEFT)
            found[name] = msgspec.structs.replace(view, wanted=view.original)
    return tuple(found.values())


def give_back(fs: HostFS, main_journal: str, boot_id: str) -> tuple[TunableView, ...]:
    """Put back what a killed process left borrowed; () when there is nothing, or when the borrower still runs.

    To be called before the settings of `main_journal` itself are given back: what was borrowed may be one of them. Raises
    JournalError, also for a journal that is damaged.
    """
    path = journal_path(main_journal)
    if not os.path.exists(path):
        return ()
    try:
        with open_journal(path, boot_id) as journal:
            return clear_up(fs, journal)
    except JournalBusyError:
        return ()


def clear_up(fs: HostFS, journal: UndoJournal) -> tuple[TunableView, ...]:
    """Put back all that an open journal of borrowed settings holds. Raises JournalError when lines of it cannot be read."""
    if journal.problems:
        raise JournalError(_damaged(journal.problems[0]))
    return tuning.rollback(fs, journal)


def _damaged(problem: str) -> str:
    return (
        f"the journal of a measurement that was killed is damaged ({problem}); compare the read-ahead with "
        "`moetunectl tune explain read_ahead_kb`, then remove the file"
    )


def borrow(
    fs: HostFS, journal: UndoJournal, name: str, place: Place, value: str, use: Callable[[], _Opened]
) -> _Opened:
    """What `use` returns, called while `value` stands at `place`; afterwards the setting is as it was.

    Signals that end the process wait for the few microseconds that it takes. Raises BorrowError when the setting cannot be read or
    written or does not hold `value` then, JournalError when the journal cannot be written, and whatever `use` raises; in all of these
    cases the setting is as it was.
    """
    before = read_tunable(fs, place)
    if before.cell is None:
        raise BorrowError(before.unknown or f"{place.path} cannot be read")
    if before.cell.value == value:
        return use()
    seq = journal.intend(name, place, before.cell, Cell(place.path, value))
    try:
        with _signals_wait():
            return _swapped(fs, place, before.cell, value, use)
    finally:
        if read_tunable(fs, place).cell != Cell(place.path, value):
            _forget(journal, name, seq)


def _forget(journal: UndoJournal, name: str, seq: int) -> None:
    """Nothing of ours stands there any more. Without a record on the disk a later reader sees that by itself."""
    try:
        journal.undone(seq)
    except JournalError:
        journal.forget(name)


def _swapped(fs: HostFS, place: Place, original: Cell, value: str, use: Callable[[], _Opened]) -> _Opened:
    wanted = Cell(place.path, value)
    meanwhile = read_tunable(fs, place).cell
    if meanwhile != original:  # flushing the journal takes milliseconds
        raise BorrowError(f"somebody changed {place.path} in the same moment; it was left alone")
    try:
        write_tunable(fs, place, wanted)
    except OSError as error:
        raise BorrowError(describe_error(error, place.path)) from error
    stands = read_tunable(fs, place).cell
    try:
        if stands != wanted:
            made = "nothing that can be read" if stands is None else stands.value
            raise BorrowError(f"the kernel made {made} of {value} in {place.path}")
        return use()
    finally:
        if read_tunable(fs, place).cell == stands:  # or somebody chose another value since
            _put_back(fs, place, original)


def _put_back(fs: HostFS, place: Place, original: Cell) -> None:
    try:
        write_tunable(fs, place, original)
    except OSError as error:
        why = describe_error(error, place.path)
        raise BorrowError(f"{place.path} could not be put back to {original.value}: {why}") from error


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Signals that would end the process come when it is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFERRED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
