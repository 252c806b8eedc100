"""What became of a setting, for people and programs: the views that applying, checking and giving back return."""

from __future__ import annotations

import msgspec

from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Bound, Cell, Place, Wanted
from moetuned.state.undo_records import Held, SideEffect, Yielded

TAKEN_AT_OPEN = "restart backends that were running before: the value is taken when a file is opened"
TAKE_UP = "`moetunectl tune apply`"


def show_cell(cell: Cell | None) -> str | None:
    """A value for people: plain, or with the file's name when it is the twin of a pair (`dirty_bytes=1048576`)."""
    if cell is None:
        return None
    name = cell.path.rpartition("/")[2]
    return f"{name}={cell.value}" if name.endswith("_bytes") else cell.value


def show_wanted(wanted: Wanted) -> str:
    """What is wanted, with its bound: `50`, `at-most 10`."""
    value = show_cell(wanted.cell) or ""
    return value if wanted.bound is Bound.SET else f"{wanted.bound} {value}"


def wish_of(wanted: Wanted) -> str | None:
    """As `show_wanted`; None where the profile wants no value here, as that would depend on what is not there."""
    return None if wanted.by_profile and wanted.spec.skip is not None else show_wanted(wanted)


def show_place(place: Place) -> str:
    """What people call a setting: `vm.min_free_kbytes`, `nr_requests vda`, else its file."""
    if place.path.startswith("/proc/sys/"):
        return place.path.removeprefix("/proc/sys/").replace("/", ".")
    parts = place.path.split("/")
    if place.path.startswith("/sys/block/") and len(parts) == 6:
        return f"{parts[5]} {parts[3]}"
    return place.path


def view_of(wanted: Wanted, state: str, now: Cell | None, original: Cell | None, detail: str) -> TunableView:
    """A wanted setting's view."""
    return TunableView(
        name=wanted.spec.name,
        state=state,
        wanted=wish_of(wanted),
        now=show_cell(now),
        original=show_cell(original),
        detail=detail,
    )


def held_view(entry: Held, state: str, now: Cell | None, detail: str, wanted: Wanted | None = None) -> TunableView:
    """The view of a setting that is in the journal."""
    return TunableView(
        name=entry.tunable,
        state=state,
        wanted=show_wanted(wanted) if wanted is not None else show_cell(entry.intended),
        now=show_cell(now),
        original=show_cell(entry.original),
        detail=detail,
    )


def told(view: TunableView, place: Place) -> TunableView:
    """The view of a change just made, with what a person must still do for it."""
    if not place.taken_at_open:
        return view
    detail = f"{view.detail}; {TAKEN_AT_OPEN}" if view.detail else TAKEN_AT_OPEN
    return msgspec.structs.replace(view, detail=detail)


def adjusted(wanted: Wanted, now: Cell, original: Cell) -> TunableView:
    """The kernel took the value and made another of it."""
    return view_of(wanted, "adjusted", now, original, f"the kernel made {show_cell(now)} of {show_cell(wanted.cell)}")


def drifted(entry: Held, now: Cell | None, wanted: Wanted | None = None) -> TunableView:
    """Somebody else's value stands where ours did."""
    ours = show_cell(entry.stands_as or entry.intended)
    detail = f"moetuned had set {ours}, somebody changed it to {show_cell(now)}; left alone"
    return held_view(entry, "drifted", now, detail, wanted)


def content(entry: Held, now: Cell, wanted: Wanted) -> TunableView:
    """Somebody else's value stands where ours did, and it will do."""
    ours = show_cell(entry.stands_as or entry.intended)
    detail = f"moetuned had set {ours}, somebody changed it to {show_cell(now)}; {wanted.asked_by} is content with that"
    return held_view(entry, "already", now, detail, wanted)


def yielded_view(record: Yielded, now: Cell | None, wanted: Wanted) -> TunableView:
    """A setting that is somebody else's since they changed it."""
    detail = (
        f"somebody changed it to {show_cell(record.value)} after moetuned had set it; "
        f"moetuned leaves it alone until {TAKE_UP}"
    )
    return view_of(wanted, "yielded", now, None, detail)


def left_view(record: Yielded, now: Cell | None) -> TunableView:
    """A setting that a rollback leaves to whoever changed it."""
    detail = f"stays at {show_cell(now) or '?'}, somebody's: they changed it after moetuned had set it"
    return TunableView(record.tunable, "yielded", now=show_cell(now), detail=detail)


def side_drifted(entry: Held, side: SideEffect, now: Cell) -> TunableView:
    """What the kernel had changed along with a setting was changed again by somebody."""
    made = show_cell(side.made or side.original)
    detail = (
        f"it was {made} since moetuned set {entry.tunable}, somebody changed it to {show_cell(now)}; left alone"
        if side.made not in (None, side.original)
        else f"somebody changed it to {show_cell(now)} after moetuned had set {entry.tunable}; left alone"
    )
    return _side_view(side, now, detail)


def side_left(entry: Held, side: SideEffect, now: Cell) -> TunableView:
    """What stands beside a setting that somebody else has put back: the kernel's doing on their behalf, or theirs."""
    return _side_view(side, now, f"somebody changed it, or {entry.tunable}, after moetuned had; left alone")


def _side_view(side: SideEffect, now: Cell, detail: str) -> TunableView:
    return TunableView(
        name=show_place(side.place),
        state="drifted",
        now=show_cell(now),
        original=show_cell(side.original),
        detail=detail,
    )


def line_of(view: TunableView) -> str:
    """One setting for the log: "vm.dirty_ratio: applied, 10 (it was 20)"."""
    now = "" if view.now is None else f", {view.now}"
    original = "" if view.original is None or view.original == view.now else f" (it was {view.original})"
    detail = f": {view.detail}" if view.detail else ""
    return f"{view.name}: {view.state}{now}{original}{detail}"
