"""Applying, checking and giving back settings through the undo journal.

Three values decide everything: what a setting was (original), what moetuned left there (ours) and what stands there now.
Only what is ours is written over. What somebody else put there since is drift: reported, left alone, and no longer
moetuned's until a person asks for it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from moetuned.decide.tuning_plan import within
from moetuned.host.fs import HostFS
from moetuned.host.tunable_files import read_tunable
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Cell, PlannedStep, StepKind, Wanted
from moetuned.state import side_effects
from moetuned.state.tuning_change import clear_up, clear_up_first, give_back, recorded, write, yield_to
from moetuned.state.tuning_views import (
    TAKE_UP,
    TAKEN_AT_OPEN,
    adjusted,
    content,
    drifted,
    held_view,
    left_view,
    show_cell,
    view_of,
    yielded_view,
)
from moetuned.state.undo_journal import JournalError, UndoJournal
from moetuned.state.undo_records import Held, Yielded, interrupted

__all__ = [
    "apply",
    "confirm_drift",
    "left_to_others",
    "newly_drifted",
    "rollback",
    "standing_originals",
    "verify",
]

_NOT_TRIED = "not tried: the undo journal cannot be written"


def apply(
    fs: HostFS, journal: UndoJournal, steps: Sequence[PlannedStep], *, by_hand: bool = False
) -> tuple[TunableView, ...]:
    """Make the machine as the plan says: give back what it no longer wants, then write what it wants.

    Applying twice is the same as applying once; originals come from the journal and are never replaced by our own values.
    `by_hand`: a person asks for it. What was yielded to somebody else is taken up again only then, or when the configuration
    asks otherwise for it; and one look decides that somebody else changed a setting. Never raises for one setting:
    each view says what became of it. A journal that cannot be written stops all further writes, and the first view that is
    `failed` says why.
    """
    if journal.problems:
        why = f"the undo journal is damaged ({journal.problems[0]}); run `moetunectl tune rollback` first"
        return tuple(view_of(step.wanted, "failed", None, None, why) for step in steps)
    side_effects.put_back_owned(fs, journal.held)
    kept = {step.wanted.spec.name for step in steps if step.kind is not StepKind.SKIPPED}
    trouble = _clear_up_first(fs, journal, kept)
    dropped = [name for name in journal.held if name not in kept]
    views = {view.name: view for view in (rollback(fs, journal, dropped) if dropped else ())}
    again = _changed_along(steps)
    for number, step in enumerate([*steps, *again]):
        name = step.wanted.spec.name
        if trouble is not None and step.kind is StepKind.WRITE:
            views.setdefault(name, view_of(step.wanted, "failed", step.now, None, trouble))
            trouble = _NOT_TRIED
            continue
        if number >= len(steps) and views[name].now == show_cell(read_tunable(fs, step.wanted.spec.place).cell):
            continue
        try:
            view = _apply_step(fs, journal, step, by_hand=by_hand)
        except JournalError as error:
            trouble = _NOT_TRIED
            view = view_of(step.wanted, "failed", step.now, None, str(error))
        # Why something that is no longer wanted could not be given back says more than that it is skipped now.
        if name not in views or view.state != "skipped" or views[name].state == "restored":
            views[name] = view
    journal.taken_over = frozenset()
    recorded(journal.tidy)
    return tuple(views.values())


def _clear_up_first(fs: HostFS, journal: UndoJournal, names: Collection[str]) -> str | None:
    """Clear up what an earlier process left in the middle; why the journal does not take it, in a sentence."""
    try:
        clear_up_first(fs, journal, names)
    except JournalError as error:
        return str(error)
    return None


def _changed_along(steps: Sequence[PlannedStep]) -> list[PlannedStep]:
    """Settings that another one of the plan changes along with itself: they are looked at once more when all are written."""
    beside = {
        place.path for step in steps if step.kind is not StepKind.SKIPPED for place in step.wanted.spec.side_effects
    }
    return [step for step in steps if step.kind is not StepKind.SKIPPED and step.wanted.spec.place.path in beside]


def verify(
    fs: HostFS,
    held: Mapping[str, Held],
    steps: Sequence[PlannedStep],
    previous: Iterable[TunableView] = (),
    yields: Mapping[str, Yielded] | None = None,
) -> tuple[TunableView, ...]:
    """How each setting of the plan stands now; changes nothing.

    `held` and `yields` are the journal's; `previous` are the last views: a setting that could not be applied keeps saying
    why. Held settings that the plan does not name follow.
    """
    before = {view.name: view for view in previous}
    open_paths = side_effects.in_question(held)
    views = []
    for step in steps:
        name = step.wanted.spec.name
        record = (yields or {}).get(name)
        if record is not None and not _asked_anew(record, step.wanted) and step.kind is not StepKind.SKIPPED:
            views.append(_verify_yielded(fs, record, step))
        else:
            views.append(_verify_step(fs, held.get(name), step, before, open_paths))
    planned = {step.wanted.spec.name for step in steps}
    for entry in held.values():
        if entry.tunable not in planned:
            now = read_tunable(fs, entry.place).cell
            views.append(
                held_view(entry, "applied", now, "no longer wanted; rolled back at the next apply or rollback")
                if now in entry.ours or _to_be_cleared_up(entry, now, open_paths)
                else drifted(entry, now)
            )
    return tuple(views)


def rollback(fs: HostFS, journal: UndoJournal, names: Collection[str] | None = None) -> tuple[TunableView, ...]:
    """Give back what is ours, last changed first: all of it, or the settings in `names`.

    What an earlier process left in the middle comes before all else: a setting beside it that it wanted to keep its value is
    given back after that, not before.

    A view's state is `restored`, `drifted` (somebody else's value stands there and is left alone), `skipped` (the
    setting is gone) or `failed`; what failed stays in the journal for another try. Works with a full disk. The
    journal's file is removed when nothing is left in it; what was yielded stays in it until the next boot.
    """
    side_effects.put_back_owned(fs, journal.held)
    views = [
        view
        for entry in sorted(journal.held.values(), key=lambda held: (interrupted(held), held.first_seq), reverse=True)
        if names is None or entry.tunable in names
        for view in give_back(fs, journal, entry)
    ]
    if names is None:
        recorded(journal.tidy)
    return tuple(views)


def confirm_drift(fs: HostFS, journal: UndoJournal, steps: Sequence[PlannedStep], names: Collection[str]) -> None:
    """Leave the settings `names`, which were seen to have drifted twice, to whoever changed them, for the rest of this boot."""
    wishes = {step.wanted.spec.name: step.wanted for step in steps}
    open_paths = side_effects.in_question(journal.held)
    for name in sorted(names):
        entry = journal.held.get(name)
        if entry is None or interrupted(entry) or entry.place.path in open_paths:
            continue  # the next apply or rollback clears that up first
        now = read_tunable(fs, entry.place).cell
        wanted = wishes.get(name)
        if now is None or now in entry.ours or (wanted is not None and within(wanted.bound, wanted.cell, now)):
            continue
        if wanted is None:
            yield_to(journal, entry, now, entry.intended, entry.bound)
        else:
            yield_to(journal, entry, now, wanted.cell, wanted.bound, wanted.asked_by)


def left_to_others(fs: HostFS, journal: UndoJournal, views: Iterable[TunableView]) -> tuple[TunableView, ...]:
    """What a rollback does not touch because it was yielded before: a view for each that `views` do not name."""
    named = {view.name for view in views}
    return tuple(
        left_view(record, read_tunable(fs, record.place).cell)
        for name, record in journal.yields.items()
        if name not in named
    )


def standing_originals(fs: HostFS, held: Mapping[str, Held]) -> dict[str, str]:
    """Files that hold a value of ours now, and what they held before. What somebody else put there since is theirs, and not named."""
    return {
        entry.place.path: entry.original.value
        for entry in held.values()
        if entry.original.path == entry.place.path and read_tunable(fs, entry.place).cell in entry.ours
    }


def newly_drifted(before: Iterable[TunableView], after: Iterable[TunableView]) -> tuple[TunableView, ...]:
    """The views that are drifted in `after` and were not in `before`."""
    known = {view.name for view in before if view.state == "drifted"}
    return tuple(view for view in after if view.state == "drifted" and view.name not in known)


def _asked_anew(record: Yielded, wanted: Wanted) -> bool:
    """Whether the configuration asks otherwise for a yielded setting than it did then.

    What a profile asks for may be computed from the machine: that it comes out otherwise is nobody's wish.
    """
    if wanted.by_profile:
        return not record.asked_by.startswith("profile ")
    return (record.asked_by, record.intended, record.bound) != (wanted.asked_by, wanted.cell, wanted.bound)


def _apply_step(fs: HostFS, journal: UndoJournal, step: PlannedStep, *, by_hand: bool) -> TunableView:
    wanted, want = step.wanted, step.wanted.cell
    if step.kind is StepKind.SKIPPED:
        return view_of(wanted, "skipped", step.now, None, step.reason)
    reading = read_tunable(fs, wanted.spec.place)
    if reading.cell is None:
        return view_of(wanted, "skipped", None, None, reading.unknown or "unknown")
    record = journal.yields.get(wanted.spec.name)
    if record is not None and not by_hand and not _asked_anew(record, wanted):
        return _verify_yielded(fs, record, step)
    now, entry = clear_up(fs, journal, wanted.spec.name, reading.cell)
    if entry is not None and (_made_anew(entry, now) or _given_back_unrecorded(journal, entry, now)):
        journal.undone(entry.seq)
        entry = None
    if entry is None:
        return _apply_new(fs, journal, step, now)
    if now in entry.ours:
        if within(wanted.bound, want, entry.original):
            return _apply_original(fs, journal, step, entry)
        if now == want:
            return view_of(wanted, "applied", now, entry.original, step.reason)
        if now == entry.stands_as and want == entry.intended:
            return adjusted(wanted, now, entry.original)
        return write(fs, journal, wanted, now, entry.original)
    if within(wanted.bound, want, now):
        return content(entry, now, wanted)
    view = drifted(entry, now, wanted)
    if by_hand and yield_to(journal, entry, now, want, wanted.bound, wanted.asked_by):
        return msgspec.structs.replace(view, detail=f"{view.detail}; {TAKE_UP} once more sets it again")
    return view


def _apply_new(fs: HostFS, journal: UndoJournal, step: PlannedStep, now: Cell) -> TunableView:
    """A setting that is not ours yet. What another one changed along with it is not taken for its original."""
    wanted, want = step.wanted, step.wanted.cell
    if within(wanted.bound, want, now):
        return view_of(wanted, "already", now, None, step.reason)
    original = side_effects.origin(fs, journal.held, wanted.spec.place, now)
    if original != now and within(wanted.bound, want, original):
        side_effects.put(fs, wanted.spec.place, original)
        if read_tunable(fs, wanted.spec.place).cell == original:
            return view_of(wanted, "already", original, None, step.reason)
    return write(fs, journal, wanted, now, original)


def _apply_original(fs: HostFS, journal: UndoJournal, step: PlannedStep, entry: Held) -> TunableView:
    """What was there before moetuned is as wanted now: nothing is left to hold."""
    view = give_back(fs, journal, entry)[0]
    if view.state != "restored":
        return view
    detail = f"as it was before moetuned; {step.reason}"
    return msgspec.structs.replace(
        view, state="already", wanted=view_of(step.wanted, "", None, None, "").wanted, original=None, detail=detail
    )


def _verify_yielded(fs: HostFS, record: Yielded, step: PlannedStep) -> TunableView:
    now = read_tunable(fs, step.wanted.spec.place).cell
    if now is not None and within(step.wanted.bound, step.wanted.cell, now):
        return view_of(step.wanted, "already", now, None, step.reason)
    return yielded_view(record, now, step.wanted)


def _verify_step(
    fs: HostFS,
    entry: Held | None,
    step: PlannedStep,
    previous: Mapping[str, TunableView],
    open_paths: Collection[str],
) -> TunableView:
    wanted = step.wanted
    reading = read_tunable(fs, wanted.spec.place)
    if step.kind is StepKind.SKIPPED and entry is None:
        return view_of(wanted, "skipped", reading.cell, None, step.reason)
    now, last = reading.cell, previous.get(wanted.spec.name)
    if now is None:
        return view_of(wanted, "skipped" if entry is None else "failed", None, None, reading.unknown or "unknown")
    if entry is not None:
        return _verify_held(entry, step, now, last, open_paths)
    if within(wanted.bound, wanted.cell, now):
        return view_of(wanted, "already", now, None, step.reason)
    if last is not None and last.state in ("failed", "skipped"):
        return msgspec.structs.replace(last, now=show_cell(now))
    if step.kind is StepKind.ALREADY:
        return view_of(wanted, "drifted", now, None, "it stood as wanted at first and somebody changed it; left alone")
    return view_of(wanted, "planned", now, None, "not applied")


def _to_be_cleared_up(entry: Held, now: Cell | None, open_paths: Collection[str]) -> bool:
    """Whether what stands there may come of a write, of this or of a setting beside it, that nobody saw the end of."""
    return entry.place.path in open_paths or (interrupted(entry) and now in (entry.original, entry.stood))


def _made_anew(entry: Held, now: Cell) -> bool:
    """Whether a cgroup is a new one of the same name: each start of a service makes one, with the values it had at first."""
    return now == entry.original and now not in entry.ours and entry.place.path.startswith("/sys/fs/cgroup/")


def _given_back_unrecorded(journal: UndoJournal, entry: Held, now: Cell) -> bool:
    """Whether an earlier process may have given it back where the disk took no record of that (read-only, say).

    That the original stands there is then no sign of somebody else. While one process runs, it is: only that process
    could have written it back.
    """
    return entry.tunable in journal.taken_over and now == entry.original and now not in entry.ours


def _verify_held(
    entry: Held, step: PlannedStep, now: Cell, last: TunableView | None, open_paths: Collection[str]
) -> TunableView:
    wanted, want = step.wanted, step.wanted.cell
    if now in entry.ours:
        if step.kind is StepKind.SKIPPED or within(wanted.bound, want, entry.original):
            why = step.reason if step.kind is StepKind.SKIPPED else "what was there before moetuned is as wanted"
            return view_of(wanted, "planned", now, entry.original, f"to be given back: {why}")
        view = None
        if now == want:
            view = view_of(wanted, "applied", now, entry.original, step.reason)
        elif now == entry.stands_as and want == entry.intended:
            view = adjusted(wanted, now, entry.original)
        if view is None:
            return view_of(wanted, "planned", now, entry.original, "not applied yet")
        told_before = last is not None and TAKEN_AT_OPEN in last.detail
        return last if last is not None and told_before and (last.wanted, last.now) == (view.wanted, view.now) else view
    if _made_anew(entry, now):
        return view_of(wanted, "planned", now, entry.original, "its cgroup was made anew; to be applied again")
    if _to_be_cleared_up(entry, now, open_paths):
        return view_of(wanted, "planned", now, entry.original, "not applied yet")
    return content(entry, now, wanted) if within(wanted.bound, want, now) else drifted(entry, now, wanted)
