"""Write-ahead undo journal: what every setting was before moetuned changed it, on disk before the change is made.

JSON lines, one record each, flushed to the disk before the kernel is written. What the kernel holds is gone with a reboot,
so records of another boot are dropped. One process at a time may hold the journal; anybody who can read it may look. What was
left to somebody else stays written down, too, until the next boot.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Self

import msgspec

from moetuned.host.durable_file import (
    lock_directory,
    make_private_directory,
    read_private,
    remove_durably,
    write_durably,
)
from moetuned.host.fs import HostFS
from moetuned.schema.tunable import Bound, Cell, Place
from moetuned.state.undo_records import (
    Applied,
    Held,
    Intend,
    Probe,
    Record,
    Refused,
    SideEffect,
    Undo,
    Undone,
    Yielded,
    check,
    fold,
)

__all__ = [
    "DEFAULT_DIRECTORY",
    "FILE_NAME",
    "Held",
    "JournalBusyError",
    "JournalContents",
    "JournalError",
    "UndoJournal",
    "Yielded",
    "default_path",
    "is_held",
    "open_journal",
    "parse_journal",
    "read_boot_id",
    "read_journal",
]

DEFAULT_DIRECTORY = "/var/lib/moetuned"
FILE_NAME = "undo.jsonl"
_LIMIT_BYTES = 8 << 20


class JournalError(Exception):
    """The journal cannot be used; the text is one sentence with its path and what to do."""


class JournalBusyError(JournalError):
    """Another process holds the journal."""


class JournalContents(msgspec.Struct, frozen=True):
    """A journal as read. `notes` are for people; `problems` are lines that cannot be understood.

    `held` are the tunables that are ours, `yields` those that somebody else took over.
    """

    held: dict[str, Held] = {}
    yields: dict[str, Yielded] = {}
    next_seq: int = 1
    good_bytes: int = 0
    file_bytes: int = 0
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


_DECODER = msgspec.json.Decoder(Record)


def default_path(environment_directory: str | None) -> str:
    """The journal's path, in the directory that MOETUNED_STATE_DIR names or in /var/lib/moetuned."""
    return os.path.join(os.path.abspath(environment_directory or DEFAULT_DIRECTORY), FILE_NAME)


def read_boot_id(fs: HostFS) -> str:
    """The kernel's id of this boot. Raises JournalError: without it originals of another boot could be taken for ours."""
    path = "/proc/sys/kernel/random/boot_id"
    try:
        boot_id = fs.read_text(path, 64).strip()
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}; without the boot id no setting is changed") from error
    if not boot_id:
        raise JournalError(f"{path} is empty; without the boot id no setting is changed")
    return boot_id


def read_journal(path: str, boot_id: str) -> JournalContents:
    """What the journal says, without taking it; empty when there is none. Raises JournalError when it cannot be read."""
    try:
        return parse_journal(read_private(path, _LIMIT_BYTES), boot_id, path)
    except OSError as error:
        raise JournalError(f"the undo journal {path} cannot be read: {error.strerror or error}") from error


def parse_journal(content: bytes, boot_id: str, path: str = FILE_NAME) -> JournalContents:
    """Fold the records of this boot. A last line without its end is one whose write was never made: it does not count."""
    good_bytes = content.rfind(b"\n") + 1
    held: dict[str, Held] = {}
    yields: dict[str, Yielded] = {}
    problems: list[str] = []
    last_seq, other_boots = 0, 0
    for number, line in enumerate(content[:good_bytes].splitlines(), 1):
        try:
            record = _DECODER.decode(line)
            if record.boot_id != boot_id:
                other_boots += 1
                continue
            check(record, held)
        except (msgspec.DecodeError, ValueError) as error:
            problems.append(f"{path} line {number}: {error}")
            continue
        last_seq = max(last_seq, record.seq)
        fold(held, yields, record)
    notes = (
        (f"{other_boots} records of an earlier boot dropped: the kernel forgot those settings",) if other_boots else ()
    )
    return JournalContents(held, yields, last_seq + 1, good_bytes, len(content), notes, tuple(problems))


class UndoJournal:
    """The journal, held by this process. Use `open_journal`; every method that appends raises JournalError."""

    def __init__(self, path: str, boot_id: str, contents: JournalContents, lock: int) -> None:
        self.path = path
        self.notes = contents.notes
        self.problems = contents.problems
        self._boot_id = boot_id
        self._held = dict(contents.held)
        self._yields = dict(contents.yields)
        self.taken_over = frozenset(contents.held)
        """Tunables that an earlier process held, until this one has looked at them."""
        self._next_seq = contents.next_seq
        self._length = contents.good_bytes
        self._lock: int | None = lock

    @property
    def held(self) -> dict[str, Held]:
        """Every tunable that is ours, by name, oldest first."""
        return dict(sorted(self._held.items(), key=lambda item: item[1].first_seq))

    @property
    def yields(self) -> dict[str, Yielded]:
        """Every tunable that was ours until somebody else changed it, by name."""
        return dict(self._yields)

    def intend(
        self,
        tunable: str,
        place: Place,
        original: Cell,
        intended: Cell,
        *,
        bound: Bound = Bound.SET,
        asked_by: str = "",
        beside: Iterable[SideEffect] = (),
        stood: Cell | None = None,
    ) -> int:
        """Record what is about to be written; the write may be made once this has returned. Gives the record's seq.

        `stood`: what stands there now, where moetuned itself has caused that it is not the original any more.
        """
        seq = self._next_seq
        self._append(
            Intend(
                boot_id=self._boot_id,
                seq=seq,
                tunable=tunable,
                place=place,
                original=original,
                intended=intended,
                bound=bound,
                asked_by=asked_by,
                beside=tuple(beside),
                stood=stood,
            )
        )
        self._next_seq += 1
        return seq

    def applied(self, seq: int, value: Cell, beside: Iterable[Cell] = ()) -> None:
        """The write was made; `value` was read back, and `beside` where the kernel changes something along with it."""
        self._append(Applied(boot_id=self._boot_id, seq=seq, value=value, beside=tuple(beside)))

    def refused(self, seq: int) -> None:
        """The kernel changed nothing."""
        self._append(Refused(boot_id=self._boot_id, seq=seq))

    def probe(self, seq: int, value: Cell) -> None:
        """The intended value is about to be written over `value`, of unknown owner."""
        self._append(Probe(boot_id=self._boot_id, seq=seq, value=value))

    def undo(self, seq: int, beside: Iterable[Cell] = ()) -> None:
        """The original is about to be written back; `beside` shall stand in the places of its side effects then."""
        self._append(Undo(boot_id=self._boot_id, seq=seq, beside=tuple(beside)))

    def undone(self, seq: int) -> None:
        """The tunable is no longer ours."""
        self._append(Undone(boot_id=self._boot_id, seq=seq))

    def yielded(self, tunable: str, place: Place, value: Cell, *, intended: Cell, bound: Bound, asked_by: str) -> None:
        """Somebody else changed the tunable to `value`: it is no longer ours, and is to be left alone during this boot."""
        self._append(
            Yielded(
                boot_id=self._boot_id,
                seq=self._next_seq,
                tunable=tunable,
                place=place,
                value=value,
                intended=intended,
                bound=bound,
                asked_by=asked_by,
            )
        )
        self._next_seq += 1

    def forget(self, tunable: str) -> None:
        """Drop a tunable that was given back, when the disk takes no record of it; the file still names it."""
        self._held.pop(tunable, None)

    def tidy(self) -> None:
        """Remove the file once nothing in it is needed; one with lines nobody understands is kept beside, `.damaged`.

        What was yielded is needed until the next boot: then nothing but that stays in the file.
        """
        if self._held:
            return
        lines = b"".join(msgspec.json.encode(record) + b"\n" for record in self._yields.values())
        if lines and len(lines) == self._length and not self.problems:
            return
        try:
            if self.problems or not lines:
                remove_durably(self.path, f"{self.path}.damaged" if self.problems else None)
                self._length, self.problems = 0, ()
            if lines:
                write_durably(f"{self.path}.new", lines, 0)
                remove_durably(f"{self.path}.new", self.path)
                self._length = len(lines)
        except OSError as error:
            raise JournalError(f"{self.path} cannot be tidied: {error.strerror or error}") from error

    def close(self) -> None:
        """Let another process have the journal."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, record: Record) -> None:
        if self._lock is None:
            raise JournalError(f"the undo journal {self.path} is closed")
        line = msgspec.json.encode(record) + b"\n"
        try:
            write_durably(self.path, line, self._length)
        except OSError as error:
            raise JournalError(
                f"the undo journal {self.path} cannot be written ({error.strerror or error}), so the setting is left as it is"
            ) from error
        self._length += len(line)
        fold(self._held, self._yields, record)


def is_held(path: str) -> bool:
    """Whether another process holds the journal at this moment; False where that cannot be seen."""
    try:
        os.close(lock_directory(os.path.dirname(path)))
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def open_journal(path: str, boot_id: str) -> UndoJournal:
    """Take the journal at `path` for this process, its directory made (0700) where it is missing.

    Raises JournalBusyError when another process holds it, JournalError when it cannot be made, trusted or read.
    """
    directory = os.path.dirname(path)
    try:
        make_private_directory(directory)
        lock = lock_directory(directory)
    except BlockingIOError as error:
        raise JournalBusyError(
            f"another moetuned process holds {directory} (a running daemon?); stop it, or let it do the tuning"
        ) from error
    except OSError as error:
        raise JournalError(f"the undo journal needs {directory}: {error.strerror or error}") from error
    try:
        journal = UndoJournal(path, boot_id, read_journal(path, boot_id), lock)
        if not journal.problems and not journal.yields:
            journal.tidy()
    except BaseException:
        os.close(lock)
        raise
    return journal
