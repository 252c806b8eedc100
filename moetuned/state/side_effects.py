"""Settings that the kernel changes along with another: what they were, what it made of them, and how they come back.

Writing transparent_hugepage/enabled makes the kernel compute vm.min_free_kbytes anew, choosing a disk's scheduler sets its
nr_requests. What they held before is in the journal with the setting itself. Such a place may be a tunable of its own, too, which
then owns it: its value is put back whenever the kernel has changed it, and its original is the value before either of the two.

Once somebody else has written the setting, be it what was there before moetuned, the kernel has computed its side effects anew for them:
what stands there is their doing, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import describe_error, read_tunable, write_tunable
from moetuned.schema.tunable import Cell, Place
from moetuned.state.undo_records import Held, SideEffect, interrupted

Cells = Mapping[str, Cell]
"""What stands in places, by their path; one that cannot be read is missing."""


class Target(msgspec.Struct, frozen=True):
    """What shall stand in a side effect's place; `foreign`: it is what somebody else put there."""

    side: SideEffect
    cell: Cell
    foreign: bool = False


def look(fs: HostFS, places: Iterable[Place]) -> dict[str, Cell]:
    """What stands in the places now."""
    readings = ((place.path, read_tunable(fs, place).cell) for place in places)
    return {path: cell for path, cell in readings if cell is not None}


def owner_of(held: Mapping[str, Held], place: Place) -> Held | None:
    """The tunable that moetuned holds in this very place, None when it is nobody's."""
    return next((entry for entry in held.values() if entry.place.path == place.path), None)


def origin(fs: HostFS, held: Mapping[str, Held], place: Place, now: Cell) -> Cell:
    """What stood in a place before moetuned: `now`, unless that is there because of something moetuned did.

    Where somebody else has changed the setting since that it changes along with, it is their doing.
    """
    owner = owner_of(held, place)
    if owner is not None and now in owner.ours:
        return owner.original
    for entry in held.values():
        for side in entry.beside:
            if side.place.path == place.path and now == side.made and _still_ours(fs, entry):
                return side.original
    return now


def _still_ours(fs: HostFS, entry: Held) -> bool:
    return read_tunable(fs, entry.place).cell in entry.ours


def before_write(
    fs: HostFS, held: Mapping[str, Held], tunable: str, places: Iterable[Place], stood: Cells
) -> tuple[SideEffect, ...]:
    """What goes into the journal ahead of a write of `tunable`; `stood` is what stands in its side effects' places now."""
    entry = held.get(tunable)
    known = {side.place.path: side for side in entry.beside} if entry is not None else {}
    found = []
    for place in places:
        now = stood.get(place.path)
        if now is None:
            continue
        before = known.pop(place.path, None)
        owner = owner_of(held, place)
        if before is not None and (now in (before.original, before.made) or (owner is not None and now in owner.ours)):
            found.append(before)
        else:
            found.append(SideEffect(place, origin(fs, held, place, now), None if before is None else before.made))
    return (*found, *known.values())


def after_write(fs: HostFS, held: Mapping[str, Held], entry: Held, stood: Cells) -> tuple[Cell, ...]:
    """What the kernel made of the side effects of a write. Where another tunable owns the place, its value is put back."""
    made = []
    for side in entry.beside:
        now = read_tunable(fs, side.place).cell
        owner, was = owner_of(held, side.place), stood.get(side.place.path)
        if owner is not None and was is not None and was in owner.ours and now != was:
            put(fs, side.place, was)
            now = read_tunable(fs, side.place).cell
        if now is not None:
            made.append(now)
    return tuple(made)


def in_question(held: Mapping[str, Held]) -> frozenset[str]:
    """Paths of which nobody can say yet whether the kernel or somebody else changed them: those beside an interrupted write."""
    return frozenset(side.place.path for entry in held.values() if interrupted(entry) for side in entry.beside)


def put_back_owned(fs: HostFS, held: Mapping[str, Held]) -> None:
    """After a process that ended in the middle of a write: give the tunables beside it their values again.

    Only where that write, or the undo, was made: what stands beside a value that somebody else chose since is their doing.
    """
    for entry in held.values():
        if not entry.beside or not interrupted(entry):
            continue
        stands = read_tunable(fs, entry.place).cell
        if not ((entry.undoing and stands == entry.original) or (not entry.settled and stands in entry.ours)):
            continue
        for side in entry.beside:
            owner, now = owner_of(held, side.place), read_tunable(fs, side.place).cell
            if owner is None or now is None or now in (*owner.ours, owner.original, side.original):
                continue
            ours = owner.stands_as or owner.intended
            put(fs, side.place, ours if side.original == owner.original else side.original)


def targets(fs: HostFS, held: Mapping[str, Held], entry: Held, *, sure: bool) -> tuple[Target, ...]:
    """What shall stand in the side effects' places once `entry` is given back.

    The originals, where what stands there now is what the kernel made; what somebody else put there stays. Where a tunable owns the place,
    that is so only if somebody had changed it before the kernel did: then the original is theirs. `sure` False:
    the end of the last write was not seen, and what stands there is taken for what the kernel made of it.
    """
    found = []
    for side in entry.beside:
        now = read_tunable(fs, side.place).cell
        if now is None:
            continue
        owner = owner_of(held, side.place)
        owned = owner is not None and now in (*owner.ours, owner.original)
        if owner is not None and (owned or not sure or now != side.made):
            found.append(Target(side, now if owned or sure else owner.stands_as or owner.intended))
        elif not sure or now in (side.original, side.made):
            found.append(Target(side, side.original))
        else:
            found.append(Target(side, now, foreign=True))
    return tuple(found)


def changed(fs: HostFS, held: Mapping[str, Held], entry: Held) -> tuple[tuple[SideEffect, Cell], ...]:
    """The side effects of `entry` that do not stand as before moetuned, with what stands there; not those that a tunable owns."""
    stood = look(fs, (side.place for side in entry.beside))
    return tuple(
        (side, stood[side.place.path])
        for side in entry.beside
        if stood.get(side.place.path, side.original) != side.original and owner_of(held, side.place) is None
    )


def targets_again(entry: Held) -> tuple[Target, ...]:
    """The targets that an undo which did not come to its end had."""
    by_path = {cell.path: cell for cell in entry.targets}
    paths = {side.place.path: side.place.twin_path or "" for side in entry.beside}
    found = ((side, by_path.get(side.place.path, by_path.get(paths[side.place.path]))) for side in entry.beside)
    return tuple(Target(side, side.original if cell is None else cell) for side, cell in found)


def settle(
    fs: HostFS, held: Mapping[str, Held], wanted: Sequence[Target], gave_way: Callable[[Held], None]
) -> str | None:
    """Make the targets stand; why one does not, in a sentence.

    The value of a tunable that owns a place may not fit any more (a longer queue than a disk without scheduler takes): then its
    original comes back and `gave_way` is told.
    """
    problem = None
    for target in wanted:
        place = target.side.place
        now = read_tunable(fs, place).cell
        if now is None or now == target.cell:
            continue
        refusal = put(fs, place, target.cell)
        after = read_tunable(fs, place).cell
        if after == target.cell:
            continue
        owner = owner_of(held, place)
        if owner is not None:
            refusal = put(fs, place, owner.original)
            after = read_tunable(fs, place).cell
        if owner is not None and after == owner.original:
            gave_way(owner)
        else:
            why = describe_error(refusal, place.path) if refusal else f"the kernel keeps {place.path} at {_text(after)}"
            problem = problem or f"{target.cell.value} could not be written back beside it: {why}"
    return problem


def put(fs: HostFS, place: Place, cell: Cell) -> OSError | None:
    """Write a value; what the kernel answered when it did not take it."""
    try:
        write_tunable(fs, place, cell)
    except OSError as error:
        return error
    return None


def _text(cell: Cell | None) -> str:
    return "an unknown value" if cell is None else cell.value
