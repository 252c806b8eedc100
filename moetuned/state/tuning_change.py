"""One setting through the undo journal: written, cleared up after a crash, given back, or left to somebody else.

Three values decide: what a setting was (original), what moetuned left there (ours) and what stands there now. Only what is
ours is written over.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection

from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import describe_error, read_tunable, unset_of_stopped_unit
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Bound, Cell, Wanted
from moetuned.state import side_effects
from moetuned.state.side_effects import Target, put
from moetuned.state.tuning_views import adjusted, drifted, held_view, show_cell, side_drifted, side_left, told, view_of
from moetuned.state.undo_journal import JournalError, UndoJournal
from moetuned.state.undo_records import Held, interrupted

_NOT_FROM_HERE = (errno.ENOENT, errno.EROFS, errno.EACCES, errno.EPERM)


def write(fs: HostFS, journal: UndoJournal, wanted: Wanted, before: Cell, original: Cell) -> TunableView:
    """Journal, write, read back, journal what the kernel made of it. Raises JournalError; the setting is as it was then."""
    place, want, name = wanted.spec.place, wanted.cell, wanted.spec.name
    stood = side_effects.look(fs, wanted.spec.side_effects)
    seq = journal.intend(
        name,
        place,
        original,
        want,
        bound=wanted.bound,
        asked_by=wanted.asked_by,
        beside=side_effects.before_write(fs, journal.held, name, wanted.spec.side_effects, stood),
        stood=before if before != original and name not in journal.held else None,
    )
    entry = journal.held[name]
    meanwhile = read_tunable(fs, place).cell
    if meanwhile != before:  # flushing the journal takes milliseconds
        recorded(journal.refused, seq)
        return held_view(entry, "drifted", meanwhile, "somebody changed it in the same moment; left alone", wanted)
    refusal = put(fs, place, want)
    reading = read_tunable(fs, place)
    now = reading.cell
    if now is None:
        return view_of(wanted, "failed", None, original, reading.unknown or "unknown")
    made = side_effects.after_write(fs, journal.held, entry, stood)
    if now == before:
        recorded(journal.refused, seq)
        state = (
            "skipped" if refusal is not None and refusal.errno in _NOT_FROM_HERE and before == original else "failed"
        )
        why = describe_error(refusal, want.path) if refusal else f"the kernel kept {show_cell(before)}"
        return view_of(wanted, state, now, None if before == original else original, why)
    try:
        journal.applied(seq, now, made)
    except JournalError:
        put(fs, place, before)
        _put_beside(fs, entry, stood)
        raise
    view = view_of(wanted, "applied", now, original, "") if now == want else adjusted(wanted, now, original)
    return told(view, place)


def clear_up_first(fs: HostFS, journal: UndoJournal, names: Collection[str]) -> None:
    """Clear up every interrupted write or rollback of the settings `names`, the last one first. Raises JournalError.

    To be called before any setting is written: what the kernel changed along with an interrupted one may be a setting of the
    plan itself, and is the kernel's doing only once it is known how the write ended. Until then it would pass for its original.
    """
    for entry in sorted(journal.held.values(), key=lambda held: held.seq, reverse=True):
        if entry.tunable in names and interrupted(entry):
            now = read_tunable(fs, entry.place).cell
            if now is not None:
                clear_up(fs, journal, entry.tunable, now)


def clear_up(fs: HostFS, journal: UndoJournal, name: str, now: Cell) -> tuple[Cell, Held | None]:
    """What stands there and what the journal holds of it, once an interrupted write or rollback is cleared up."""
    entry = journal.held.get(name)
    if entry is None or not interrupted(entry):
        return now, entry
    if now == entry.stood:
        journal.refused(entry.seq)
    elif now == entry.original:
        if entry.undoing:
            _settle(fs, journal, entry, side_effects.targets_again(entry))
        journal.undone(entry.seq)
    elif _stands_ours(fs, journal, entry, now):
        # After an undo that was not made, what the kernel made of the last write is known already.
        beside = () if entry.settled else side_effects.look(fs, (side.place for side in entry.beside)).values()
        journal.applied(entry.seq, now, beside)
    else:
        now = read_tunable(fs, entry.place).cell or now
        journal.applied(entry.seq, entry.intended)
    return now, journal.held.get(name)


def give_back(fs: HostFS, journal: UndoJournal, entry: Held) -> tuple[TunableView, ...]:
    """Write the original back where ours stands, and what changed along with it; then the setting is no longer ours.

    What somebody else put there is left alone, and is theirs during this boot. The first view is the setting's; further
    ones are side effects that somebody else changed. Never raises: works with a full disk.
    """
    reading = read_tunable(fs, entry.place)
    now = reading.cell
    if now is None:
        if fs.exists(entry.place.path):
            return (held_view(entry, "failed", None, reading.unknown or "unknown"),)
        try:
            unset_of_stopped_unit(fs, entry.place, {cell.value for cell in entry.ours}, entry.original.value)
        except (OSError, ValueError) as error:
            return (
                held_view(entry, "failed", None, f"its unit does not run and keeps ours for its next start: {error}"),
            )
        return _finish(journal, held_view(entry, "skipped", None, reading.unknown or "gone"), entry)
    if now == entry.stood:
        return _finish(journal, held_view(entry, "restored", now, "it had not been set yet"), entry)
    if now == entry.original:
        there = "its original stood there already"
        if entry.undoing:
            return _settled(fs, journal, entry, now, side_effects.targets_again(entry), there)
        # Never written, or somebody else has put it back: what the kernel did along with that is no undo of ours to correct.
        beside = [side_left(entry, side, cell) for side, cell in side_effects.changed(fs, journal.held, entry)]
        return (*_finish(journal, held_view(entry, "restored", now, there), entry), *beside)
    if not _stands_ours(fs, journal, entry, now):
        return _leave(journal, entry, read_tunable(fs, entry.place).cell)
    wanted = side_effects.targets(fs, journal.held, entry, sure=entry.settled)
    recorded(journal.undo, entry.seq, [target.cell for target in wanted])
    meanwhile = read_tunable(fs, entry.place).cell
    if meanwhile != now:
        return _leave(journal, entry, meanwhile)
    refusal = put(fs, entry.place, entry.original)
    after = read_tunable(fs, entry.place).cell
    if after == entry.original:
        return _settled(fs, journal, entry, after, wanted, "")
    why = describe_error(refusal, entry.original.path) if refusal else f"the kernel made {show_cell(after)} of it"
    return (held_view(entry, "failed", after, f"the original could not be written back: {why}"),)


def yield_to(
    journal: UndoJournal, entry: Held, now: Cell, intended: Cell, bound: Bound = Bound.SET, asked_by: str = ""
) -> bool:
    """Write down that somebody else changed the setting, and that it is theirs now. False: the disk takes no record."""
    return recorded(
        lambda: journal.yielded(
            entry.tunable, entry.place, now, intended=intended, bound=bound, asked_by=asked_by or entry.asked_by
        )
    )


def recorded(append: Callable[..., None], *arguments: object) -> bool:
    """Whether the record could be written; for records whose loss changes nothing that cannot be seen from the kernel."""
    try:
        append(*arguments)
    except JournalError:
        return False
    return True


def _stands_ours(fs: HostFS, journal: UndoJournal, entry: Held, now: Cell) -> bool:
    """Whether moetuned left `now` there.

    After a write that nobody saw the end of, a value that is neither the original nor the intended one may be what the
    kernel made of the intended one, or somebody else's. Writing the intended value once more tells: the kernel makes
    the same of it. Otherwise what stood there is put back; it is in the journal first, so that a process that ends
    in between loses nothing.
    """
    if entry.settled:
        return now in entry.ours
    stood = side_effects.look(fs, (side.place for side in entry.beside))
    if now not in entry.ours:
        if now not in entry.probed[-1:] and not recorded(journal.probe, entry.seq, now):
            return False
        put(fs, entry.place, entry.intended)
        if read_tunable(fs, entry.place).cell != now:
            put(fs, entry.place, now)
            _put_beside(fs, entry, stood)
            return False
        _put_beside(fs, entry, stood)
    others = [value for value in entry.probed if value != now]
    if others:  # it ended while it tried
        put(fs, entry.place, others[-1])
        _put_beside(fs, entry, stood)
    return not others


def _put_beside(fs: HostFS, entry: Held, cells: side_effects.Cells) -> None:
    """Let the places beside a setting hold what they held."""
    for side in entry.beside:
        cell = cells.get(side.place.path)
        if cell is not None and read_tunable(fs, side.place).cell not in (None, cell):
            put(fs, side.place, cell)


def _settled(
    fs: HostFS, journal: UndoJournal, entry: Held, now: Cell, wanted: tuple[Target, ...], detail: str
) -> tuple[TunableView, ...]:
    """The original stands; now what changes along with it."""
    problem = _settle(fs, journal, entry, wanted)
    if problem is not None:
        return (held_view(entry, "failed", now, problem),)
    view = held_view(entry, "restored", now, detail)
    beside = (side_drifted(entry, target.side, target.cell) for target in wanted if target.foreign)
    return (*_finish(journal, view if detail else told(view, entry.place), entry), *beside)


def _leave(journal: UndoJournal, entry: Held, now: Cell | None) -> tuple[TunableView, ...]:
    """Somebody else's value stays, and moetuned does not set it again during this boot."""
    if entry.asked_by and now is not None and yield_to(journal, entry, now, entry.intended, entry.bound):
        return (drifted(entry, now),)
    return _finish(journal, drifted(entry, now), entry)


def _settle(fs: HostFS, journal: UndoJournal, entry: Held, wanted: tuple[Target, ...]) -> str | None:
    def gave_way(owner: Held) -> None:
        """Once nobody owns the place, the value that did not fit must not be tried again: the journal says so first."""
        place = owner.place.path
        cells = [owner.original if target.side.place.path == place else target.cell for target in wanted]
        recorded(journal.undo, entry.seq, cells)
        _drop(journal, owner)

    return side_effects.settle(fs, journal.held, wanted, gave_way)


def _finish(journal: UndoJournal, view: TunableView, entry: Held) -> tuple[TunableView, ...]:
    _drop(journal, entry)
    return (view,)


def _drop(journal: UndoJournal, entry: Held) -> None:
    if not recorded(journal.undone, entry.seq):
        journal.forget(entry.tunable)
