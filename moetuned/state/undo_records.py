"""What the undo journal's lines say: the records, what may stand in them, and what they come to when they are read in order.

Nothing but values of kernel settings is ever written back, whatever a journal holds: `check` refuses every other record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from moetuned.host.service_manager import is_unit
from moetuned.schema.tunable import Bound, Cell, Codec, Place

# The only files that are ever written back. Their links are the kernel's own: nobody can make one in /sys.
_SETTING = re.compile(
    r"/proc/sys(/[\w.:-]+)+"
    r"|/sys/kernel/mm(/[\w.:-]+)+"
    r"|/sys/class/bdi/[\w.:!-]+/read_ahead_kb"
    r"|/sys/block/[\w.:!-]+/bdi/read_ahead_kb"
    r"|/sys/block/[\w.:!-]+/queue/(scheduler|nr_requests|wbt_lat_usec|read_ahead_kb)"
    r"|/sys/devices(/[\w.:!-]+)+/(scheduler|nr_requests|wbt_lat_usec|read_ahead_kb)"
    r"|/sys/fs/cgroup(/[\w.:@\\-]+)+/(memory\.low|memory\.min|io\.weight)",
    re.ASCII,
)
_VALUE = {
    Codec.INTEGER: re.compile(r"-?[0-9]{1,20}"),
    Codec.CHOICE: re.compile(r"[\w.:+-]{1,64}", re.ASCII),
    Codec.LIMIT: re.compile(r"max|[0-9]{1,20}"),
    Codec.WEIGHT: re.compile(r"[0-9]{1,20}"),
}
_UNIT_FILES = {"MemoryLow": "memory.low", "MemoryMin": "memory.min", "IOWeight": "io.weight"}


class _Record(msgspec.Struct, frozen=True, tag_field="record", omit_defaults=True, kw_only=True):
    boot_id: str
    seq: int


class SideEffect(msgspec.Struct, frozen=True, omit_defaults=True):
    """A setting that the kernel changes along with another: what it was, and what the kernel made of it (None: not known)."""

    place: Place
    original: Cell
    made: Cell | None = None


class Intend(_Record, frozen=True, tag="intend"):
    """`tunable` is about to be given the value `intended`; before moetuned touched it, it held `original`.

    `bound` and `asked_by` are how and by whom it is wanted, `beside` what may change along with it. `stood` is what stands there
    when that is another value than the original because of something moetuned did.
    """

    tunable: str
    place: Place
    original: Cell
    intended: Cell
    bound: Bound = Bound.SET
    asked_by: str = ""
    beside: tuple[SideEffect, ...] = ()
    stood: Cell | None = None


class Applied(_Record, frozen=True, tag="applied"):
    """The write of `seq` was made and the kernel made `value` of it, and `beside` of what changes along with it."""

    value: Cell
    beside: tuple[Cell, ...] = ()


class Refused(_Record, frozen=True, tag="refused"):
    """The write of `seq` changed nothing."""


class Probe(_Record, frozen=True, tag="probe"):
    """`value` stood where it is not known whose it is; the intended value is about to be written once more to find out."""

    value: Cell


class Undo(_Record, frozen=True, tag="undo"):
    """The original is about to be written back; `beside` is what shall stand in the places beside it afterwards."""

    beside: tuple[Cell, ...] = ()


class Undone(_Record, frozen=True, tag="undone"):
    """The tunable is no longer ours."""


class Yielded(_Record, frozen=True, tag="yielded"):
    """Somebody changed the tunable to `value` after moetuned had set it: it is theirs until a person says otherwise.

    `intended`, `bound` and `asked_by` are what moetuned wanted then.
    """

    tunable: str
    place: Place
    value: Cell
    intended: Cell
    bound: Bound = Bound.SET
    asked_by: str = ""


Record = Intend | Applied | Refused | Probe | Undo | Undone | Yielded


class Held(msgspec.Struct, frozen=True):
    """A tunable that moetuned changed, as the records say.

    `ours` are all values that moetuned may have left there, `stands_as` what the kernel made of the last one (None: the
    process ended before it could say), `settled` whether the last write is known to be over, `undoing` whether
    the original may have been written back already, `probed` values of unknown owner that were written over to find out.
    `beside` are its side effects, `targets` what an undo that has begun wants to stand there. `stood`: see `Intend`.
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
    bound: Bound = Bound.SET
    asked_by: str = ""
    beside: tuple[SideEffect, ...] = ()
    targets: tuple[Cell, ...] = ()
    stood: Cell | None = None


def interrupted(entry: Held) -> bool:
    """Whether a process ended before it could say how its write or its undo went."""
    return entry.undoing or not entry.settled


def check(record: Record, held: dict[str, Held]) -> None:
    """Whether the record may be believed, after those that made `held`. Raises ValueError with what is wrong."""
    if isinstance(record, Intend):
        _check_place(record.place)
        _check_cells(record.place, record.original, record.intended, *([] if record.stood is None else [record.stood]))
        for side in record.beside:
            _check_place(side.place)
            _check_cells(side.place, side.original, *([] if side.made is None else [side.made]))
    elif isinstance(record, Yielded):
        _check_place(record.place)
        _check_cells(record.place, record.value, record.intended)
    elif isinstance(record, Applied | Probe | Undo):
        entry = _entry(held, record.seq)
        if entry is None:  # given back already: it says nothing
            return
        if not isinstance(record, Undo):
            _check_cells(entry.place, record.value)
        if not isinstance(record, Probe):
            _check_beside(entry, record.beside)


def _check_place(place: Place) -> None:
    for path in (place.path, place.twin_path):
        if path is not None and (_SETTING.fullmatch(path) is None or not {".", ".."}.isdisjoint(path.split("/"))):
            raise ValueError(f"{path!r} is no kernel setting")
    if place.unit is None and place.unit_property is None:
        return
    if place.unit is None or not is_unit(place.unit):
        raise ValueError(f"{place.unit!r} is no unit")
    name = place.path.rpartition("/")[2]
    if place.unit_property is None or _UNIT_FILES.get(place.unit_property) != name or place.twin_path is not None:
        raise ValueError(f"{place.unit_property!r} is no property of a unit that stands in {name}")


def _check_cells(place: Place, *cells: Cell) -> None:
    if not {cell.path for cell in cells} <= {place.path, place.twin_path}:
        raise ValueError("the values do not belong to the place")
    if any(_VALUE[place.codec].fullmatch(cell.value) is None for cell in cells):
        raise ValueError(f"a value is none of the kind {place.codec}")


def _check_beside(entry: Held, cells: Iterable[Cell]) -> None:
    places = {path: side.place for side in entry.beside for path in (side.place.path, side.place.twin_path)}
    for cell in cells:
        place = places.get(cell.path)
        if place is None:
            raise ValueError(f"{cell.path!r} is no side effect of {entry.tunable}")
        _check_cells(place, cell)


def _entry(held: dict[str, Held], seq: int) -> Held | None:
    return next((entry for entry in held.values() if entry.seq == seq), None)


def fold(held: dict[str, Held], yields: dict[str, Yielded], record: Record) -> None:
    """Bring what is held and what is yielded up to date with one more record."""
    if isinstance(record, Intend):
        held[record.tunable] = _intended(held.get(record.tunable), record)
        yields.pop(record.tunable, None)
        return
    if isinstance(record, Yielded):
        held.pop(record.tunable, None)
        yields[record.tunable] = record
        return
    entry = _entry(held, record.seq)
    if entry is None:
        return
    changed: Held | None
    match record:
        case Applied(value=value):
            changed = _applied(entry, value, record.beside)
        case Refused() if entry.stands_as is not None:
            changed = msgspec.structs.replace(entry, intended=entry.stands_as, settled=True)
        case Probe(value=value):
            changed = msgspec.structs.replace(entry, probed=(*entry.probed, value))
        case Undo():
            changed = msgspec.structs.replace(entry, undoing=True, targets=record.beside)
        case _:
            changed = None
    if changed is None:
        del held[entry.tunable]
    else:
        held[entry.tunable] = changed


def _intended(before: Held | None, record: Intend) -> Held:
    return Held(
        record.tunable,
        record.place,
        before.original if before else record.original,
        record.intended,
        (*(before.ours if before else ()), record.intended),
        before.first_seq if before else record.seq,
        record.seq,
        before.stands_as if before else None,
        bound=record.bound,
        asked_by=record.asked_by,
        beside=record.beside,
        stood=record.stood,
    )


def _applied(entry: Held, value: Cell, made: tuple[Cell, ...]) -> Held:
    by_path = {cell.path: cell for cell in made}
    beside = tuple(
        msgspec.structs.replace(
            side, made=by_path.get(side.place.path, by_path.get(side.place.twin_path or "", side.made))
        )
        for side in entry.beside
    )
    ours = (*entry.ours, value)
    return msgspec.structs.replace(
        entry, ours=ours, stands_as=value, settled=True, undoing=False, probed=(), beside=beside, targets=(), stood=None
    )
