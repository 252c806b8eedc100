"""Write-ahead undo journal: what every setting was before moetuned changed it, on disk before the change is made.

JSON lines, one record each, flushed to the disk before the kernel is written. What the kernel holds is gone with a reboot,
so records of another boot are dropped. One process at a time may hold the journal; anybody who can read it may look.
"""

from __future__ import annotations

import os
import re
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
from moetuned.schema.tunable import Cell, Codec, Place

DEFAULT_DIRECTORY = "/var/lib/moetuned"
FILE_NAME = "undo.jsonl"
_LIMIT_BYTES = 8 << 20
# The only files that are ever written back. Their links are the kernel's own: nobody can make one in /sys.
_SETTING = re.compile(
    r"/proc/sys(/[\w.:-]+)+"
    r"|/sys/kernel/mm(/[\w.:-]+)+"
    r"|/sys/class/bdi/[\w.:!-]+/read_ahead_kb"
    r"|/sys/block/[\w.:!-]+/(bdi|queue)/read_ahead_kb"
    r"|/sys/devices(/[\w.:!-]+)+/read_ahead_kb",
    re.ASCII,
)
_VALUE = {Codec.INTEGER: re.compile(r"-?[0-9]{1,20}"), Codec.CHOICE: re.compile(r"[\w.:+-]{1,64}", re.ASCII)}


class JournalError(Exception):
    """The journal cannot be used; the text is one sentence with its path and what to do."""


class JournalBusyError(JournalError):
    """Another process holds the journal."""


class _Record(msgspec.Struct, frozen=True, tag_field="record", omit_defaults=True, kw_only=True):
    boot_id: str
    seq: int


class Intend(_Record, frozen=True, tag="intend"):
    """`tunable` is about to be given the value `intended`; before moetuned touched it, it held `original`."""

    tunable: str
    place: Place
    original: Cell
    intended: Cell


class Applied(_Record, frozen=True, tag="applied"):
    """The write of `seq` was made and the kernel made `value` of it."""

    value: Cell


class Refused(_Record, frozen=True, tag="refused"):
    """The write of `seq` changed nothing."""


class Probe(_Record, frozen=True, tag="probe"):
    """`value` stood where it is not known whose it is; the intended value is about to be written once more to find out."""

    value: Cell


class Undo(_Record, frozen=True, tag="undo"):
    """The original is about to be written back."""


class Undone(_Record, frozen=True, tag="undone"):
    """The tunable is no longer ours."""


Record = Intend | Applied | Refused | Probe | Undo | Undone


class Held(msgspec.Struct, frozen=True):
    """A tunable that moetuned changed, as the records say.

    `ours` are all values that moetuned may have left there, `stands_as` what the kernel made of the last one (None: the
    process ended before it could say), `settled` whether the last write is known to be over, `undoing` whether
    the original may have been written back already, `probed` values of unknown owner that were written over to find out.
    """

    tunable: str
    place: Place
    original: Cell
    intended: Cell
    ours: tuple[Cell, ...]
    first_seq: int
    seq: int
    stands_as: Cell | None = None
    settled: bool = False
    undoing: bool = False
    probed: tuple[Cell, ...] = ()


class JournalContents(msgspec.Struct, frozen=True):
    """A journal as read. `notes` are for people; `problems` are lines that cannot be understood."""

    held: dict[str, Held] = {}
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
    problems: list[str] = []
    last_seq, other_boots = 0, 0
    for number, line in enumerate(content[:good_bytes].splitlines(), 1):
        try:
            record = _DECODER.decode(line)
            if record.boot_id != boot_id:
                other_boots += 1
                continue
            _check(record, held)
        except (msgspec.DecodeError, ValueError) as error:
            problems.append(f"{path} line {number}: {error}")
            continue
        last_seq = max(last_seq, record.seq)
        fold(held, record)
    notes = (
        (f"{other_boots} records of an earlier boot dropped: the kernel forgot those settings",) if other_boots else ()
    )
    return JournalContents(held, last_seq + 1, good_bytes, len(content), notes, tuple(problems))


def _check(record: Record, held: dict[str, Held]) -> None:
    """Nothing but values of kernel settings may ever be written back, whatever the file says. Raises ValueError."""
    if isinstance(record, Intend):
        place = record.place
        for path in (place.path, place.twin_path):
            if path is not None and (_SETTING.fullmatch(path) is None or not {".", ".."}.isdisjoint(path.split("/"))):
                raise ValueError(f"{path!r} is no kernel setting")
        cells: tuple[Cell, ...] = (record.original, record.intended)
    elif isinstance(record, Applied | Probe):
        entry = _entry(held, record.seq)
        if entry is None:  # given back already: it says nothing
            return
        place, cells = entry.place, (record.value,)
    else:
        return
    if not {cell.path for cell in cells} <= {place.path, place.twin_path}:
        raise ValueError("the values do not belong to the place")
    if any(_VALUE[place.codec].fullmatch(cell.value) is None for cell in cells):
        raise ValueError(f"a value is none of the kind {place.codec}")


def _entry(held: dict[str, Held], seq: int) -> Held | None:
    return next((entry for entry in held.values() if entry.seq == seq), None)


def fold(held: dict[str, Held], record: Record) -> None:
    """Bring `held` up to date with one more record."""
    if isinstance(record, Intend):
        before = held.get(record.tunable)
        held[record.tunable] = Held(
            record.tunable,
            record.place,
            before.original if before else record.original,
            record.intended,
            (*(before.ours if before else ()), record.intended),
            before.first_seq if before else record.seq,
            record.seq,
            before.stands_as if before else None,
        )
        return
    entry = _entry(held, record.seq)
    if entry is None:
        return
    changed: Held | None
    match record:
        case Applied(value=value):
            ours = (*entry.ours, value)
            changed = msgspec.structs.replace(entry, ours=ours, stands_as=value, settled=True, undoing=False, probed=())
        case Refused() if entry.stands_as is not None:
            changed = msgspec.structs.replace(entry, intended=entry.stands_as, settled=True)
        case Probe(value=value):
            changed = msgspec.structs.replace(entry, probed=(*entry.probed, value))
        case Undo():
            changed = msgspec.structs.replace(entry, undoing=True)
        case _:
            changed = None
    if changed is None:
        del held[entry.tunable]
    else:
        held[entry.tunable] = changed


class UndoJournal:
    """The journal, held by this process. Use `open_journal`; every method that appends raises JournalError."""

    def __init__(self, path: str, boot_id: str, contents: JournalContents, lock: int) -> None:
        self.path = path
        self.notes = contents.notes
        self.problems = contents.problems
        self._boot_id = boot_id
        self._held = dict(contents.held)
        self._next_seq = contents.next_seq
        self._length = contents.good_bytes
        self._lock: int | None = lock

    @property
    def held(self) -> dict[str, Held]:
        """Every tunable that is ours, by name, oldest first."""
        return dict(sorted(self._held.items(), key=lambda item: item[1].first_seq))

    def intend(self, tunable: str, place: Place, original: Cell, intended: Cell) -> int:
        """Record what is about to be written; the write may be made once this has returned. Gives the record's seq."""
        seq = self._next_seq
        self._append(
            Intend(boot_id=self._boot_id, seq=seq, tunable=tunable, place=place, original=original, intended=intended)
        )
        self._next_seq += 1
        return seq

    def applied(self, seq: int, value: Cell) -> None:
        """The write was made; `value` was read back."""
        self._append(Applied(boot_id=self._boot_id, seq=seq, value=value))

    def refused(self, seq: int) -> None:
        """The kernel changed nothing."""
        self._append(Refused(boot_id=self._boot_id, seq=seq))

    def probe(self, seq: int, value: Cell) -> None:
        """The intended value is about to be written over `value`, of unknown owner."""
        self._append(Probe(boot_id=self._boot_id, seq=seq, value=value))

    def undo(self, seq: int) -> None:
        """The original is about to be written back."""
        self._append(Undo(boot_id=self._boot_id, seq=seq))

    def undone(self, seq: int) -> None:
        """The tunable is no longer ours."""
        self._append(Undone(boot_id=self._boot_id, seq=seq))

    def forget(self, tunable: str) -> None:
        """Drop a tunable that was given back, when the disk takes no record of it; the file still names it."""
        self._held.pop(tunable, None)

    def tidy(self) -> None:
        """Remove the file once nothing in it is needed; one with lines nobody understands is kept beside, `.damaged`."""
        if self._held:
            return
        try:
            remove_durably(self.path, f"{self.path}.damaged" if self.problems else None)
        except OSError as error:
            raise JournalError(f"{self.path} cannot be removed: {error.strerror or error}") from error
        self._length, self.problems = 0, ()

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
        fold(self._held, record)


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
        if not journal.problems:
            journal.tidy()
    except BaseException:
        os.close(lock)
        raise
    return journal
