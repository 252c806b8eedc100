"""A setting changed for the moment in which something is opened, and put back at once.

Some values are copied by the kernel when a file is opened (read-ahead). To measure with another value it has to stand there for
that moment only: a few microseconds, between two writes. It has an undo journal of its own, in a directory below the
daemon's, so that it works beside a running daemon, which holds the other one: the original is on disk before the first write, and what a
process left that was killed in between is put back by the next one, or by `give_back`. A daemon that looks in this
very moment sees a value that is gone when it looks again, which it does before it believes in drift.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import TypeVar

from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import describe_error, read_tunable, write_tunable
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Cell, Place
from moetuned.state import tuning
from moetuned.state.undo_journal import FILE_NAME, JournalBusyError, JournalError, UndoJournal, open_journal

DIRECTORY = "readahead"
_Opened = TypeVar("_Opened")
_DEFERRED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BorrowError(Exception):
    """The setting cannot be changed for a moment; the text is one sentence. It is as it was."""


def journal_path(main_journal: str) -> str:
    """Path of the journal of borrowed settings that belongs to the undo journal `main_journal`."""
    return os.path.join(os.path.dirname(main_journal), DIRECTORY, FILE_NAME)


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
        raise JournalError(
            f"the journal of a measurement that was killed is damaged ({journal.problems[0]}); compare the read-ahead with "
            "`moetunectl tune explain read_ahead_kb`, then remove the file"
        )
    return tuning.rollback(fs, journal)


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
