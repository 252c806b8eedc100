"""Applying, checking and giving back settings through the undo journal.

Three values decide everything: what a setting was (original), what moetuned left there (ours) and what stands there now.
Only what is ours is written over. What somebody else put there since is drift: reported and left alone.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import describe_error, read_tunable, write_tunable
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Cell, Place, PlannedStep, StepKind, Wanted
from moetuned.state.undo_journal import Held, JournalError, UndoJournal

_NOT_FROM_HERE = (errno.ENOENT, errno.EROFS, errno.EACCES, errno.EPERM)
_TAKEN_AT_OPEN = "restart backends that were running before: the value is taken when a file is opened"


def apply(fs: HostFS, journal: UndoJournal, steps: Sequence[PlannedStep]) -> tuple[TunableView, ...]:
    """Make the machine as the plan says: give back what it no longer wants, then write what it wants.

    Applying twice is the same as applying once; originals come from the journal and are never replaced by our own values.
    Never raises for one setting: each view says what became of it. A journal that cannot be written stops all further
    writes, and the first view that is `failed` says why.
    """
    if journal.problems:
        why = f"the undo journal is damaged ({journal.problems[0]}); run `moetunectl tune rollback` first"
        return tuple(_view(step.wanted, "failed", None, None, why) for step in steps)
    kept = {step.wanted.spec.name for step in steps if step.kind is not StepKind.SKIPPED}
    dropped = [name for name in journal.held if name not in kept]
    views = {view.name: view for view in (rollback(fs, journal, dropped) if dropped else ())}
    stopped = False
    for step in steps:
        name = step.wanted.spec.name
        if stopped and step.kind is StepKind.WRITE:
            views[name] = _view(step.wanted, "failed", step.now, None, "not tried: the undo journal cannot be written")
            continue
        try:
            view = _apply_step(fs, journal, step)
        except JournalError as error:
            stopped = True
            view = _view(step.wanted, "failed", step.now, None, str(error))
        if name not in views or view.state != "skipped" or views[name].state == "restored":
            views[name] = view
    _tidy(journal)
    return tuple(views.values())


def verify(
    fs: HostFS,
    held: Mapping[str, Held],
    steps: Sequence[PlannedStep],
    previous: Iterable[TunableView] = (),
) -> tuple[TunableView, ...]:
    """How each setting of the plan stands now; changes nothing.

    `held` is the journal's; `previous` are the last views: a setting that could not be applied keeps saying why. Held
    settings that the plan does not name follow.
    """
    before = {view.name: view for view in previous}
    views = [_verify_step(fs, held.get(step.wanted.spec.name), step, before) for step in steps]
    planned = {step.wanted.spec.name for step in steps}
    for entry in held.values():
        if entry.tunable not in planned:
            now = read_tunable(fs, entry.place).cell
            views.append(
                _held_view(entry, "applied", now, "no longer wanted; rolled back at the next apply or rollback")
                if now in entry.ours
                else _drifted(entry, now)
            )
    return tuple(views)


def rollback(fs: HostFS, journal: UndoJournal, names: Collection[str] | None = None) -> tuple[TunableView, ...]:
    """Give back what is ours, last changed first: all of it, or the settings in `names`.

    A view's state is `restored`, `drifted` (somebody else's value stands there and is left alone), `skipped` (the
    setting is gone) or `failed`; what failed stays in the journal for another try. Works with a full disk. The
    journal's file is removed when nothing is left in it.
    """
    views = [
        _give_back(fs, journal, entry)
        for entry in reversed(journal.held.values())
        if names is None or entry.tunable in names
    ]
    if names is None:
        _tidy(journal)
    return tuple(views)


def newly_drifted(before: Iterable[TunableView], after: Iterable[TunableView]) -> tuple[TunableView, ...]:
    """The views that are drifted in `after` and were not in `before`."""
    known = {view.name for view in before if view.state == "drifted"}
    return tuple(view for view in after if view.state == "drifted" and view.name not in known)


def show_cell(cell: Cell | None) -> str | None:
    """A value for people: plain, or with the file's name when it is the twin of a pair (`dirty_bytes=1048576`)."""
    if cell is None:
        return None
    name = cell.path.rpartition("/")[2]
    return f"{name}={cell.value}" if name.endswith("_bytes") else cell.value


def _apply_step(fs: HostFS, journal: UndoJournal, step: PlannedStep) -> TunableView:
    wanted, want = step.wanted, step.wanted.cell
    if step.kind is StepKind.SKIPPED:
        return _view(wanted, "skipped", step.now, None, step.reason)
    reading = read_tunable(fs, wanted.spec.place)
    if reading.cell is None:
        return _view(wanted, "skipped", None, None, reading.unknown or "unknown")
    now, entry = _clear_up(fs, journal, wanted.spec.name, reading.cell)
    if entry is None:
        if now == want:
            return _view(wanted, "already", now, None, step.reason)
        return _write(fs, journal, wanted, now, now)
    if now == want:
        return _view(wanted, "applied", now, entry.original, step.reason)
    if now == entry.stands_as and want == entry.intended:
        return _adjusted(wanted, now, entry.original)
    if now in entry.ours:
        return _write(fs, journal, wanted, now, entry.original)
    return _drifted(entry, now, want)


def _clear_up(fs: HostFS, journal: UndoJournal, name: str, now: Cell) -> tuple[Cell, Held | None]:
    """What stands there and what the journal holds of it, once an interrupted write or rollback is cleared up."""
    entry = journal.held.get(name)
    if entry is None or (entry.settled and not entry.undoing):
        return now, entry
    if now == entry.original:
        journal.undone(entry.seq)
    elif _stands_ours(fs, journal, entry, now):
        journal.applied(entry.seq, now)
    else:
        now = read_tunable(fs, entry.place).cell or now
        journal.applied(entry.seq, entry.intended)
    return now, journal.held.get(name)


def _stands_ours(fs: HostFS, journal: UndoJournal, entry: Held, now: Cell) -> bool:
    """Whether moetuned left `now` there.

    After a write that nobody saw the end of, a value that is neither the original nor the intended one may be what the
    kernel made of the intended one, or somebody else's. Writing the intended value once more tells: the kernel makes
    the same of it. Otherwise what stood there is put back; it is in the journal first, so that a process that ends
    in between loses nothing.
    """
    if entry.settled:
        return now in entry.ours
    if now not in entry.ours:
        if now not in entry.probed[-1:] and not _recorded(journal.probe, entry.seq, now):
            return False
        _put(fs, entry, entry.intended)
        if read_tunable(fs, entry.place).cell != now:
            _put(fs, entry, now)
            return False
    others = [value for value in entry.probed if value != now]
    if others:  # it ended while it tried
        _put(fs, entry, others[-1])
    return not others


def _write(fs: HostFS, journal: UndoJournal, wanted: Wanted, before: Cell, original: Cell) -> TunableView:
    """Journal, write, read back, journal what the kernel made of it."""
    place, want = wanted.spec.place, wanted.cell
    seq = journal.intend(wanted.spec.name, place, original, want)
    entry = journal.held[wanted.spec.name]
    meanwhile = read_tunable(fs, place).cell
    if meanwhile != before:  # flushing the journal takes milliseconds
        _recorded(journal.refused, seq)
        return _held_view(entry, "drifted", meanwhile, "somebody changed it in the same moment; left alone", want)
    refusal = _put(fs, entry, want)
    reading = read_tunable(fs, place)
    now = reading.cell
    if now is None:
        return _view(wanted, "failed", None, original, reading.unknown or "unknown")
    if now == before:
        _recorded(journal.refused, seq)
        state = (
            "skipped" if refusal is not None and refusal.errno in _NOT_FROM_HERE and before == original else "failed"
        )
        why = describe_error(refusal, want.path) if refusal else f"the kernel kept {show_cell(before)}"
        return _view(wanted, state, now, None if before == original else original, why)
    try:
        journal.applied(seq, now)
    except JournalError:
        _put(fs, entry, before)
        raise
    view = _view(wanted, "applied", now, original, "") if now == want else _adjusted(wanted, now, original)
    return _told(view, place)


def _give_back(fs: HostFS, journal: UndoJournal, entry: Held) -> TunableView:
    reading = read_tunable(fs, entry.place)
    now = reading.cell
    if now is None:
        if fs.exists(entry.place.path):
            return _held_view(entry, "failed", None, reading.unknown or "unknown")
        return _finish(journal, _held_view(entry, "skipped", None, reading.unknown or "gone"), entry)
    if now == entry.original:
        return _finish(journal, _held_view(entry, "restored", now, "its original stood there already"), entry)
    if not _stands_ours(fs, journal, entry, now):
        return _finish(journal, _drifted(entry, read_tunable(fs, entry.place).cell), entry)
    _recorded(journal.undo, entry.seq)
    meanwhile = read_tunable(fs, entry.place).cell
    if meanwhile != now:
        return _finish(journal, _drifted(entry, meanwhile), entry)
    refusal = _put(fs, entry, entry.original)
    after = read_tunable(fs, entry.place).cell
    if after == entry.original:
        return _finish(journal, _told(_held_view(entry, "restored", after, ""), entry.place), entry)
    why = describe_error(refusal, entry.original.path) if refusal else f"the kernel made {show_cell(after)} of it"
    return _held_view(entry, "failed", after, f"the original could not be written back: {why}")


def _finish(journal: UndoJournal, view: TunableView, entry: Held) -> TunableView:
    if not _recorded(journal.undone, entry.seq):
        journal.forget(entry.tunable)
    return view


def _verify_step(fs: HostFS, entry: Held | None, step: PlannedStep, previous: Mapping[str, TunableView]) -> TunableView:
    wanted, want = step.wanted, step.wanted.cell
    if step.kind is StepKind.SKIPPED and entry is None:
        return _view(wanted, "skipped", step.now, None, step.reason)
    reading = read_tunable(fs, wanted.spec.place)
    now, last = reading.cell, previous.get(wanted.spec.name)
    if now is None:
        return _view(wanted, "skipped" if entry is None else "failed", None, None, reading.unknown or "unknown")
    if entry is not None:
        view = None
        if now == want:
            view = _view(wanted, "applied", now, entry.original, step.reason)
        elif now == entry.stands_as and want == entry.intended:
            view = _adjusted(wanted, now, entry.original)
        if view is not None:
            told = last is not None and _TAKEN_AT_OPEN in last.detail
            return last if last is not None and told and (last.wanted, last.now) == (view.wanted, view.now) else view
        if now in entry.ours or (not entry.settled and now == entry.original):
            return _view(wanted, "planned", now, entry.original, "not applied yet")
        return _drifted(entry, now, want)
    if now == want:
        return _view(wanted, "already", now, None, step.reason)
    if last is not None and last.state in ("failed", "skipped"):
        return msgspec.structs.replace(last, now=show_cell(now))
    if step.kind is StepKind.ALREADY:
        return _view(wanted, "drifted", now, None, "it stood as wanted at first and somebody changed it; left alone")
    return _view(wanted, "planned", now, None, "not applied")


def _put(fs: HostFS, entry: Held, cell: Cell) -> OSError | None:
    try:
        write_tunable(fs, entry.place, cell)
    except OSError as error:
        return error
    return None


def _recorded(append: Callable[..., None], *arguments: object) -> bool:
    """Whether the record could be written; for records whose loss changes nothing that cannot be seen from the kernel."""
    try:
        append(*arguments)
    except JournalError:
        return False
    return True


def _tidy(journal: UndoJournal) -> None:
    """A file that cannot be removed says the same as none: nothing in it is in force."""
    _recorded(journal.tidy)


def _view(wanted: Wanted, state: str, now: Cell | None, original: Cell | None, detail: str) -> TunableView:
    return TunableView(
        name=wanted.spec.name,
        state=state,
        wanted=show_cell(wanted.cell),
        now=show_cell(now),
        original=show_cell(original),
        detail=detail,
    )


def _told(view: TunableView, place: Place) -> TunableView:
    """The view of a change just made, with what a person must still do for it."""
    if not place.taken_at_open:
        return view
    detail = f"{view.detail}; {_TAKEN_AT_OPEN}" if view.detail else _TAKEN_AT_OPEN
    return msgspec.structs.replace(view, detail=detail)


def _adjusted(wanted: Wanted, now: Cell, original: Cell) -> TunableView:
    detail = f"the kernel made {show_cell(now)} of {show_cell(wanted.cell)}"
    return _view(wanted, "adjusted", now, original, detail)


def _held_view(entry: Held, state: str, now: Cell | None, detail: str, want: Cell | None = None) -> TunableView:
    return TunableView(
        name=entry.tunable,
        state=state,
        wanted=show_cell(want or entry.intended),
        now=show_cell(now),
        original=show_cell(entry.original),
        detail=detail,
    )


def _drifted(entry: Held, now: Cell | None, want: Cell | None = None) -> TunableView:
    ours = show_cell(entry.stands_as or entry.intended)
    detail = f"moetuned had set {ours}, somebody changed it to {show_cell(now)}; left alone"
    return _held_view(entry, "drifted", now, detail, want)
