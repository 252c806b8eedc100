"""Planning, making, checking and taking away swap, through a record on the disk.

What blocks for long (a swap that is swapped off is read back first) has `slowly` in its name and belongs in a worker. The caller
holds the state directory (`state.undo_journal.open_journal`) for `apply_slowly` and `rollback_slowly`. No function raises
for what the machine answers: each view says what became of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import msgspec

from moetuned.decide.swap_plan import ZRAM_NAME, asked_for, plan_swap, swap_file_name
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
from moetuned.state.swap_record import (
    Stage,
    SwapRecordError,
    SwapRecordHiddenError,
    SwapStore,
    YieldedSwap,
    exists,
    open_store,
)
from moetuned.state.swap_views import LEFT_ALONE, said, view, yielded_view
from moetuned.state.swap_zram import (
    finish_zram,
    is_zram_on,
    keep_zram,
    make_zram,
    take_zram,
    verify_zram,
    whose_zram,
)
from moetuned.state.tuning_views import TAKE_UP

__all__ = ["apply_slowly", "confirm_drift", "exists", "plan", "rollback_slowly", "verify"]

_WHOLE = (Stage.MADE, Stage.REMOVING)
"""One whose removal was not finished is whole or soon gone: it is no stranger's."""
_GONE_STATES = frozenset({"drifted", "planned", "failed", "skipped"})
"""How a swap looks that somebody took away, when nothing is known of that."""


def plan(host: SwapHost, directory: str, wish: Swap | None) -> tuple[SwapStep, ...]:
    """What `apply_slowly` would do about each swap that is wished for; changes nothing.

    `directory` is the state directory. Where its record cannot be read (not root), every step is skipped and says so. Cheap: what is
    wished for and what the record names is looked at, nothing is measured.
    """
    if wish is None:
        return ()
    facts = host.facts(wish.file, look_for_zram=wish.zram is not None)
    try:
        store, boot_id = open_store(directory), host.boot_id()
        return plan_swap(wish, facts, _ours(host, store, boot_id, wish))
    except (OSError, SwapRecordError) as error:
        steps = plan_swap(wish, facts)
        why = f"not known: {said(error)}"
        return tuple(msgspec.structs.replace(step, kind=SwapStepKind.SKIPPED, reason=why) for step in steps)


def apply_slowly(
    host: SwapHost,
    directory: str,
    wish: Swap | None,
    progress: Progress | None = None,
    patience_seconds: float | None = None,
    *,
    by_hand: bool = False,
) -> tuple[TunableView, ...]:
    """Make the machine's swap as wished: clear up what was left half done, take away what is no longer wanted, make what is.

    Applying twice is the same as applying once. What moetuned made and cannot be taken away keeps its place until it can. What
    somebody took away, swapped off or put another in place of is reported once as drifted and is theirs for the rest of the boot:
    moetuned makes it again when the config asks otherwise for it, or `by_hand`, when a person asks for it after it was reported.
    """
    views: dict[str, TunableView] = {}
    try:
        store, boot_id = open_store(directory, held=True), host.boot_id()
        taken_up = _take_up(store, boot_id, wish, by_hand=by_hand)
        for kind, finish in ((SwapKind.FILE, finish_file), (SwapKind.ZRAM, finish_zram)):
            known = store.yielded(kind) is not None or kind in taken_up
            found = finish(host, store, boot_id, progress, patience_seconds)
            if kind in taken_up or _asks_otherwise(store, kind, boot_id, wish):
                known = known or asked_for(wish, kind) != ""
                store.yield_to(kind, None)
            if found is not None and not (known and found.state == "drifted"):
                views[found.name] = found
        path = None if wish is None else wish.file
        facts = host.facts(path, look_for_zram=wish is not None and wish.zram is not None)
        steps = plan_swap(wish, facts, _ours(host, store, boot_id, wish))
    except (OSError, SwapRecordError) as error:
        return tuple(view(name, "failed", None, None, f"no swap is changed: {said(error)}") for name in _names(wish))
    by_target = {step.target: step for step in steps}
    _take_unwanted(host, store, boot_id, by_target, views, progress, patience_seconds)
    for step in steps:
        if step.name not in views or views[step.name].state == "restored":
            views[step.name] = _do(host, store, step, boot_id, take_up=step.target in taken_up)
    once_more = f"; {TAKE_UP} once more makes it again"
    return (
        *(
            msgspec.structs.replace(each, detail=each.detail + once_more)
            if by_hand and each.state == "drifted" and each.name in {step.name for step in steps}
            else each
            for each in views.values()
        ),
        *_unsaved(store),
    )


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
        state = "skipped" if isinstance(error, SwapRecordHiddenError) else "failed"
        return tuple(view(step.name, state, step.wanted, None, f"not known: {said(error)}") for step in steps)
    record = store.record
    by_target = {step.target: step for step in steps}
    views: dict[str, TunableView] = {}
    for step in steps:
        views[step.name] = _verify_absent(step, before.get(step.name))
    if record.file is not None:
        file_step = by_target.get(SwapKind.FILE)
        wanted, detail = _wanted(file_step, swap_file_name(record.file.path))
        found = verify_file(host, record.file, wanted, detail, boot_id)
        views[found.name] = _to_be_made_anew(found, file_step, record.file.size_bytes)
    if record.zram is not None:
        zram_step = by_target.get(SwapKind.ZRAM)
        wanted, detail = _wanted(zram_step, ZRAM_NAME)
        found = verify_zram(host, record.zram, wanted, detail, boot_id)
        views[found.name] = _to_be_made_anew(found, zram_step, record.zram.size_bytes)
    for step in steps:
        what, state = store.yielded(step.target), views[step.name].state
        if what is not None and (what.boot_id, what.asked) == (boot_id, step.asked) and state in _GONE_STATES:
            views[step.name] = yielded_view(step.name, step.wanted, what.why)
    return tuple(views.values())


def confirm_drift(host: SwapHost, directory: str) -> None:
    """Write down that what somebody swapped off, removed or replaced is theirs for the rest of this boot. The caller holds the directory.

    Does not block. Never raises: what cannot be written down is found out again.
    """
    with contextlib.suppress(OSError, SwapRecordError):
        store, boot_id = open_store(directory, held=True), host.boot_id()
        file, zram = store.record.file, store.record.zram
        found = {
            SwapKind.FILE: None if file is None else (verify_file(host, file, None, "", boot_id), file.asked),
            SwapKind.ZRAM: None if zram is None else (verify_zram(host, zram, None, "", boot_id), zram.asked),
        }
        for kind, item in found.items():
            if item is not None and item[0].state == "drifted" and store.yielded(kind) is None:
                store.yield_to(kind, YieldedSwap(boot_id, item[1], item[0].detail.removesuffix(LEFT_ALONE)))


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
        store, boot_id = open_store(directory, held=True), host.boot_id()
    except (OSError, SwapRecordError) as error:
        return (view("swap", "failed", None, None, said(error)),)
    if store.record.file is not None:
        views.append(take_file(host, store, boot_id, progress, patience_seconds))
    found = take_zram(host, store, boot_id, progress, patience_seconds)
    if found is not None:
        views.append(found)
    return (*views, *_unsaved(store))


def _take_up(store: SwapStore, boot_id: str, wish: Swap | None, *, by_hand: bool) -> frozenset[SwapKind]:
    """What was somebody's to decide about and is wanted again: a person asks for it, or the config does, or it is another boot."""
    kinds = frozenset(
        kind
        for kind in SwapKind
        if store.yielded(kind) is not None and (by_hand or _asks_otherwise(store, kind, boot_id, wish))
    )
    for kind in kinds:
        store.yield_to(kind, None)
    return kinds


def _asks_otherwise(store: SwapStore, kind: SwapKind, boot_id: str, wish: Swap | None) -> bool:
    """Whether what was yielded is no longer so: the config says something else of it, or it was before a reboot."""
    what = store.yielded(kind)
    return what is not None and (what.boot_id, what.asked) != (boot_id, asked_for(wish, kind))


def _unsaved(store: SwapStore) -> tuple[TunableView, ...]:
    """What to know when the record could not be brought up to date at the end."""
    if store.unsaved is None:
        return ()
    why = (
        f"{store.path} could not be updated and may name swap that is gone, which looks like somebody else's doing later: "
        f"see that it can be written, then run `moetunectl tune rollback`, or {TAKE_UP} where swap is wanted again"
    )
    return (view("swap record", "failed", None, None, why),)


def _ours(host: SwapHost, store: SwapStore, boot_id: str, wish: Swap | None) -> OurSwap:
    """What the record names and is still there, and what of it somebody took away. Raises OSError."""
    file, zram = store.record.file, store.record.zram
    if file is not None and (file.stage not in _WHOLE or whose_file(host, file) is not Whose.OURS):
        file = None
    if zram is not None and (zram.stage not in _WHOLE or whose_zram(host, zram, boot_id) is not Whose.OURS):
        zram = None
    return OurSwap(
        file_path=None if file is None else file.path,
        file_bytes=None if file is None else file.size_bytes,
        zram_number=None if zram is None else zram.number,
        zram_bytes=None if zram is None else zram.size_bytes,
        file_yielded=None
        if file is not None and host.is_swapped_on(file.path)
        else _yielded(store, SwapKind.FILE, boot_id, wish),
        zram_yielded=None
        if zram is not None and zram.number is not None and is_zram_on(host, zram.number)
        else _yielded(store, SwapKind.ZRAM, boot_id, wish),
    )


def _yielded(store: SwapStore, kind: SwapKind, boot_id: str, wish: Swap | None) -> str | None:
    what = store.yielded(kind)
    return None if what is None or _asks_otherwise(store, kind, boot_id, wish) else what.why


def _take_unwanted(
    host: SwapHost,
    store: SwapStore,
    boot_id: str,
    by_target: dict[SwapKind, SwapStep],
    views: dict[str, TunableView],
    progress: Progress | None,
    patience_seconds: float | None,
) -> None:
    """Take away what nobody wishes for or has another size or path; what can have no successor is kept and said.

    Only where that can be written down: a successor could not be made otherwise, and what is gone would look like somebody
    else's doing later.
    """
    file, step = store.record.file, by_target.get(SwapKind.FILE)
    if file is not None and swap_file_name(file.path) not in views:
        name = swap_file_name(file.path)
        if step is None or step.kind is SwapStepKind.MAKE:
            views[name] = take_file(host, store, boot_id, progress, patience_seconds, must_record=True)
        elif step.kind not in (SwapStepKind.KEEP, SwapStepKind.YIELDED):
            kept = f"{step.reason}; the one of {format_bytes(file.size_bytes)} at {file.path} is kept"
            views[step.name] = view(step.name, "skipped", step.wanted, None, kept)
    zram, step = store.record.zram, by_target.get(SwapKind.ZRAM)
    if (zram is not None or store.record.module_boot_id is not None) and ZRAM_NAME not in views:
        if step is None or step.kind is SwapStepKind.MAKE:
            taken = take_zram(host, store, boot_id, progress, patience_seconds, must_record=True)
            if taken is not None:
                views[ZRAM_NAME] = taken
        elif zram is not None and step.kind not in (SwapStepKind.KEEP, SwapStepKind.YIELDED):
            kept = f"{step.reason}; the one of {format_bytes(zram.size_bytes)} is kept"
            views[ZRAM_NAME] = view(ZRAM_NAME, "skipped", step.wanted, None, kept)


def _do(host: SwapHost, store: SwapStore, step: SwapStep, boot_id: str, *, take_up: bool) -> TunableView:
    if step.kind is SwapStepKind.KEEP:
        if step.target is SwapKind.FILE:
            return keep_file(host, store, step, boot_id, take_up=take_up)
        return keep_zram(host, store, step, take_up=take_up)
    if step.kind is SwapStepKind.YIELDED:
        return yielded_view(step.name, step.wanted, step.reason)
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
    if step.kind is SwapStepKind.YIELDED:
        return yielded_view(step.name, step.wanted, step.reason)
    if last is not None and last.state in ("failed", "skipped", "drifted"):
        return last
    if step.kind is SwapStepKind.SKIPPED:
        return _step_view(step, "skipped")
    return view(step.name, "planned", step.wanted, "none", "not made")


def _to_be_made_anew(found: TunableView, step: SwapStep | None, held_bytes: int) -> TunableView:
    """The view of what the record names where the plan wants another size of it."""
    if step is None or step.name != found.name or step.kind is not SwapStepKind.MAKE or step.size_bytes == held_bytes:
        return found
    if found.state != "applied":
        return found
    return msgspec.structs.replace(found, state="planned", detail=f"to be made anew; {step.why}")


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
