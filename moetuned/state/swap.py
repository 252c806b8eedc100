"""Planning, making, checking and taking away swap, through a record on the disk.

What blocks for long (a swap that is swapped off is read back first) has `slowly` in its name and belongs in a worker. The caller
holds the state directory (`state.undo_journal.open_journal`) for `apply_slowly` and `rollback_slowly`. No function raises
for what the machine answers: each view says what became of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from moetuned.decide.swap_plan import ZRAM_NAME, plan_swap, swap_file_name
from moetuned.host.swap_devices import Progress
from moetuned.host.swap_host import SwapHost
from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import OurSwap, Swap, SwapKind, SwapStep, SwapStepKind
from moetuned.schema.units import format_bytes
from moetuned.state.swap_file import (
    Whose,
    finish_file,
    keep_file,
    make_file,
    take_file,
    verify_file,
    whose_file,
)
from moetuned.state.swap_record import Stage, SwapRecordError, SwapStore, exists, open_store
from moetuned.state.swap_views import said, view
from moetuned.state.swap_zram import finish_zram, keep_zram, make_zram, take_zram, verify_zram, whose_zram

__all__ = ["apply_slowly", "exists", "plan", "planned_views", "rollback_slowly", "verify"]


def plan(host: SwapHost, directory: str, wish: Swap | None) -> tuple[SwapStep, ...]:
    """What `apply_slowly` would do about each swap that is wished for; changes nothing.

    `directory` is the state directory. Where its record cannot be read (not root), every step is skipped and says so.
    """
    if wish is None:
        return ()
    facts = host.facts(wish.file, look_for_zram=wish.zram is not None)
    try:
        store, boot_id = open_store(directory), host.boot_id()
        return plan_swap(wish, facts, _ours(host, store, boot_id))
    except (OSError, SwapRecordError) as error:
        steps = plan_swap(wish, facts)
        why = f"not known: {said(error)}"
        return tuple(msgspec.structs.replace(step, kind=SwapStepKind.SKIPPED, reason=why) for step in steps)


def planned_views(steps: Iterable[SwapStep]) -> tuple[TunableView, ...]:
    """A plan as views: `planned`, `applied` (made by moetuned), `already` or `skipped`."""
    states = {
        SwapStepKind.MAKE: "planned",
        SwapStepKind.KEEP: "applied",
        SwapStepKind.ALREADY: "already",
        SwapStepKind.SKIPPED: "skipped",
    }
    return tuple(_step_view(step, states[step.kind]) for step in steps)


def apply_slowly(
    host: SwapHost,
    directory: str,
    wish: Swap | None,
    progress: Progress | None = None,
    patience_seconds: float | None = None,
) -> tuple[TunableView, ...]:
    """Make the machine's swap as wished: clear up what was left half done, take away what is no longer wanted, make what is.

    Applying twice is the same as applying once. What moetuned made and cannot be taken away keeps its place until it can; what
    somebody else changed is reported once as drifted and left alone.
    """
    views: dict[str, TunableView] = {}
    try:
        store, boot_id = open_store(directory), host.boot_id()
        for finish in (finish_file, finish_zram):
            found = finish(host, store, boot_id, progress, patience_seconds)
            if found is not None:
                views[found.name] = found
        path = None if wish is None else wish.file
        facts = host.facts(path, look_for_zram=wish is not None and wish.zram is not None)
        steps = plan_swap(wish, facts, _ours(host, store, boot_id))
    except (OSError, SwapRecordError) as error:
        return tuple(view(name, "failed", None, None, f"no swap is changed: {said(error)}") for name in _names(wish))
    by_target = {step.target: step for step in steps}
    _take_unwanted(host, store, boot_id, by_target, views, progress, patience_seconds)
    for step in steps:
        if step.name not in views or views[step.name].state == "restored":
            views[step.name] = _do(host, store, step, boot_id)
    return tuple(views.values())


def verify(
    host: SwapHost, directory: str, steps: Sequence[SwapStep], previous: Iterable[TunableView] = ()
) -> tuple[TunableView, ...]:
    """How each swap of the plan stands now; changes nothing and does not block. What is ours and not in the plan follows.

    `previous` are the last views: a swap that could not be made keeps saying why, and one that drifted stays so.
    """
    before = {each.name: each for each in previous}
    try:
        store, boot_id = open_store(directory), host.boot_id()
    except (OSError, SwapRecordError) as error:
        why = f"not known: {said(error)}"
        return tuple(view(step.name, "failed", step.wanted, None, why) for step in steps)
    record = store.record
    by_target = {step.target: step for step in steps}
    views: dict[str, TunableView] = {}
    for step in steps:
        views[step.name] = _verify_absent(step, before.get(step.name))
    if record.file is not None:
        wanted, detail = _wanted(by_target.get(SwapKind.FILE), swap_file_name(record.file.path))
        found = verify_file(host, record.file, wanted, detail, boot_id)
        views[found.name] = found
    if record.zram is not None:
        wanted, detail = _wanted(by_target.get(SwapKind.ZRAM), ZRAM_NAME)
        found = verify_zram(host, record.zram, wanted, detail, boot_id)
        views[found.name] = found
    return tuple(views.values())


def rollback_slowly(
    host: SwapHost, directory: str, progress: Progress | None = None, patience_seconds: float | None = None
) -> tuple[TunableView, ...]:
    """Swap off and remove everything that moetuned made. Works with a full disk.

    A view's state is `restored`, `drifted` (no longer ours; left alone) or `failed`: what would not fit into memory or could not be
    removed stays on and in the record for another try. `progress` gets the bytes still to be read back; after
    `patience_seconds` of swapping one off it is given up and stays on.
    """
    views = []
    try:
        store, boot_id = open_store(directory), host.boot_id()
    except (OSError, SwapRecordError) as error:
        return (view("swap", "failed", None, None, said(error)),)
    if store.record.file is not None:
        views.append(take_file(host, store, boot_id, progress, patience_seconds))
    found = take_zram(host, store, boot_id, progress, patience_seconds)
    if found is not None:
        views.append(found)
    return tuple(views)


def _ours(host: SwapHost, store: SwapStore, boot_id: str) -> OurSwap:
    """What the record names and is still there. Raises OSError."""
    file, zram = store.record.file, store.record.zram
    if file is not None and (file.stage is not Stage.MADE or whose_file(host, file, boot_id) is not Whose.OURS):
        file = None
    if zram is not None and (zram.stage is not Stage.MADE or whose_zram(host, zram, boot_id) is not Whose.OURS):
        zram = None
    return OurSwap(
        file_path=None if file is None else file.path,
        file_bytes=None if file is None else file.size_bytes,
        zram_number=None if zram is None else zram.number,
        zram_bytes=None if zram is None else zram.size_bytes,
    )


def _take_unwanted(
    host: SwapHost,
    store: SwapStore,
    boot_id: str,
    by_target: dict[SwapKind, SwapStep],
    views: dict[str, TunableView],
    progress: Progress | None,
    patience_seconds: float | None,
) -> None:
    """Take away what nobody wishes for or has another size or path; what can have no successor is kept and said."""
    file, step = store.record.file, by_target.get(SwapKind.FILE)
    if file is not None and swap_file_name(file.path) not in views:
        name = swap_file_name(file.path)
        if step is None or step.kind is SwapStepKind.MAKE:
            views[name] = take_file(host, store, boot_id, progress, patience_seconds)
        elif step.kind is not SwapStepKind.KEEP:
            kept = f"{step.reason}; the one of {format_bytes(file.size_bytes)} at {file.path} is kept"
            views[step.name] = view(step.name, "skipped", step.wanted, None, kept)
    zram, step = store.record.zram, by_target.get(SwapKind.ZRAM)
    if (zram is not None or store.record.module_boot_id is not None) and ZRAM_NAME not in views:
        if step is None or step.kind is SwapStepKind.MAKE:
            taken = take_zram(host, store, boot_id, progress, patience_seconds)
            if taken is not None:
                views[ZRAM_NAME] = taken
        elif zram is not None and step.kind is not SwapStepKind.KEEP:
            kept = f"{step.reason}; the one of {format_bytes(zram.size_bytes)} is kept"
            views[ZRAM_NAME] = view(ZRAM_NAME, "skipped", step.wanted, None, kept)


def _do(host: SwapHost, store: SwapStore, step: SwapStep, boot_id: str) -> TunableView:
    if step.kind is SwapStepKind.KEEP:
        return keep_file(host, store, step, boot_id) if step.target is SwapKind.FILE else keep_zram(host, store, step)
    if step.kind is not SwapStepKind.MAKE:
        return _step_view(step, "already" if step.kind is SwapStepKind.ALREADY else "skipped")
    if step.target is SwapKind.ZRAM:
        if store.record.zram is not None:
            return view(step.name, "failed", step.wanted, None, "not made while the one before is kept")
        return make_zram(host, store, step, boot_id)
    held = store.record.file
    if held is not None:
        return view(step.name, "failed", step.wanted, None, f"not made while the one at {held.path} is kept")
    return make_file(host, store, step, boot_id)


def _verify_absent(step: SwapStep, last: TunableView | None) -> TunableView:
    """A swap of the plan of which the record has nothing."""
    if step.kind is SwapStepKind.ALREADY:
        return _step_view(step, "already")
    if last is not None and last.state in ("failed", "skipped", "drifted"):
        return last
    if step.kind is SwapStepKind.SKIPPED:
        return _step_view(step, "skipped")
    return view(step.name, "planned", step.wanted, "none", "not made")


def _wanted(step: SwapStep | None, name: str) -> tuple[str | None, str]:
    if step is None or step.name != name:
        return "none", "no longer wanted; taken away at the next apply or rollback"
    return step.wanted, step.why or step.reason


def _step_view(step: SwapStep, state: str) -> TunableView:
    now = format_bytes(step.size_bytes) if step.kind is SwapStepKind.KEEP else None
    return view(step.name, state, step.wanted, now, step.reason or step.why)


def _names(wish: Swap | None) -> tuple[str, ...]:
    names = () if wish is None or wish.zram is None else (ZRAM_NAME,)
    return names if wish is None or wish.file is None else (*names, swap_file_name(wish.file))
