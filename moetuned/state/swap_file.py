"""The swap file's life: made, found again after a crash or a reboot, taken away. `state.swap` joins it with zram."""

from __future__ import annotations

import errno
from enum import StrEnum

import msgspec

from moetuned.decide.swap_plan import swap_file_name
from moetuned.host.swap_devices import Progress
from moetuned.host.swap_host import SwapHost
from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import SwapKind, SwapStep
from moetuned.schema.units import format_bytes
from moetuned.state.swap_off import STILL_AT_IT, Kept, record_kept, swap_off_recorded
from moetuned.state.swap_record import HeldFile, Stage, SwapRecordError, SwapStore, YieldedSwap
from moetuned.state.swap_views import HALF_DONE, LEFT_ALONE, SWAPPED_OFF, said, view, with_priority


class Whose(StrEnum):
    """What stands where ours should be."""

    OURS = "ours"
    GONE = "gone"
    FOREIGN = "foreign"
    UNMOUNTED = "unmounted"


def somebody_changed(whose: Whose, stage: Stage) -> bool:
    """Whether somebody else took ours away or put theirs there: neither is how moetuned leaves it when it is ended."""
    return whose is not Whose.OURS and (stage is Stage.MADE or (whose is Whose.FOREIGN and stage is Stage.REMOVING))


def whose_file(host: SwapHost, held: HeldFile) -> Whose:
    """Whether what is at the path is the file that was made: by inode and by the UUID of its swap signature. Raises OSError.

    The inode number alone is used again at once by another file; so may a name be. The device's number says nothing: the same file
    system gets another when it is mounted again (loop, btrfs, a disk that was plugged in anew). A path whose file system is
    not mounted (yet) says nothing.
    """
    look = host.look_at_file(held.path)
    if look is not None and look.regular and (look.inode, look.uuid) == (held.inode, held.uuid):
        return Whose.OURS
    if held.mount_point is not None and host.mount_point(held.path) != held.mount_point:
        return Whose.UNMOUNTED
    return Whose.GONE if look is None else Whose.FOREIGN


def make_file(host: SwapHost, store: SwapStore, step: SwapStep, boot_id: str) -> TunableView:
    """Make the file and swap it on; what was begun is taken back when that fails. Each step is in the record before."""
    assert step.path is not None
    held = HeldFile(
        path=step.path,
        uuid=host.new_uuid(),
        size_bytes=step.size_bytes,
        stage=Stage.MAKING,
        boot_id=boot_id,
        mount_point=host.mount_point(step.path),
        priority=step.priority,
        asked=step.asked,
    )
    try:
        store.hold_file(held)
        look = host.create_file(held.temporary)
        held = store.hold_file(msgspec.structs.replace(held, inode=look.inode))
        host.fill_file(held.temporary, held.size_bytes, copy_on_write=step.filesystem == "btrfs")
        host.make_signature(held.temporary, held.uuid)
        host.flush_file(held.temporary)
        host.move_into_place(held.temporary, held.path)
        held = store.hold_file(msgspec.structs.replace(held, stage=Stage.MADE))
        host.swap_on(held.path, held.priority)
        held = store.hold_file(msgspec.structs.replace(held, on_boot_id=boot_id))
    except (OSError, SwapRecordError) as error:
        why = f"it could not be made: {said(error)}"
        if isinstance(error, OSError) and error.errno == errno.EINVAL:
            why += "; the kernel does not take it as swap on this file system (several devices, snapshots?)"
        if store.record.file is not None:
            left = take_file(host, store, boot_id)
            if left.state == "failed":
                why += f"; {left.detail}"
        return view(step.name, "failed", step.wanted, None, why)
    return file_view(held, "applied", step.wanted, step.why)


def finish_file(
    host: SwapHost,
    store: SwapStore,
    boot_id: str,
    progress: Progress | None = None,
    patience_seconds: float | None = None,
) -> TunableView | None:
    """Clear up what an earlier process left half done, and let go of what is no longer ours; a view of what a person should know.

    Raises OSError, SwapRecordError.
    """
    held = store.record.file
    if held is None:
        return None
    whose = whose_file(host, held)
    if whose is Whose.UNMOUNTED:
        return _unmounted(held)
    if held.stage is Stage.REMOVING:
        if whose is Whose.OURS and not host.wait_for_swap_off(held.path, patience_seconds):
            return file_view(held, "failed", None, STILL_AT_IT)
        if whose is Whose.OURS and host.is_swapped_on(held.path):  # it was not finished: whole, and wanted perhaps
            store.hold_file(msgspec.structs.replace(held, stage=Stage.MADE, on_boot_id=boot_id))
            return None
        left = take_file(host, store, boot_id, progress, patience_seconds)
        return None if left.state == "restored" else left
    if held.stage is not Stage.MADE:
        host.remove_file(held.temporary)
        if whose is Whose.OURS:  # it ended between the renaming and its record
            store.hold_file(msgspec.structs.replace(held, stage=Stage.MADE))
        else:
            store.forget_file()
        return None
    if whose is Whose.OURS:
        return None
    return _let_go(store, held, whose, boot_id)


def keep_file(host: SwapHost, store: SwapStore, step: SwapStep, boot_id: str, *, take_up: bool = False) -> TunableView:
    """The file that was made is wanted: swap it on again after a reboot, unless somebody swapped it off in this one.

    `take_up`: also then.
    """
    held = store.record.file
    assert held is not None
    try:
        if host.is_swapped_on(held.path):
            held = store.hold_file(msgspec.structs.replace(held, on_boot_id=boot_id, kept="", asked=step.asked))
            store.yield_to(SwapKind.FILE, None)
            return file_view(held, "applied", step.wanted, with_priority(step, held.priority))
        if held.on_boot_id == boot_id and not take_up:
            store.yield_to(SwapKind.FILE, YieldedSwap(boot_id, held.asked, SWAPPED_OFF))
            return _swapped_off(held, step.wanted)
        look = host.look_at_file(held.path)
        if look is None or look.mode & 0o077 or look.owner != 0 or look.size_bytes != held.size_bytes:
            why = "somebody changed its size, owner or mode, so it is not swapped on; roll back to have it removed"
            return file_view(held, "drifted", step.wanted, why, "off")
        host.swap_on(held.path, held.priority)
        held = store.hold_file(msgspec.structs.replace(held, on_boot_id=boot_id, kept="", asked=step.asked))
    except (OSError, SwapRecordError) as error:
        return file_view(held, "failed", step.wanted, f"it could not be swapped on again: {said(error)}", "off")
    detail = f"found again and swapped on; {with_priority(step, held.priority)}"
    return file_view(held, "applied", step.wanted, detail)


def take_file(
    host: SwapHost,
    store: SwapStore,
    boot_id: str,
    progress: Progress | None = None,
    patience_seconds: float | None = None,
    *,
    must_record: bool = False,
) -> TunableView:
    """Swap the file off and remove it. May take minutes. What does not fit into memory, or fails, stays in the record.

    Works with a full disk: the record has had all that is needed since the file was made. `must_record`: not
    so.
    """
    held = store.record.file
    assert held is not None
    was_off = False
    try:
        whose = whose_file(host, held)
        if whose is Whose.UNMOUNTED:
            return _unmounted(held)
        if held.stage is Stage.MAKING:
            host.remove_file(held.temporary)
        if whose is Whose.OURS:
            was_off = held.stage is Stage.MADE and held.on_boot_id == boot_id and not host.is_swapped_on(held.path)
            kept = swap_off_recorded(
                host,
                held,
                held.path,
                swap_file_name(held.path),
                is_on=lambda: host.is_swapped_on(held.path),
                hold=store.hold_file,
                progress=progress,
                patience_seconds=patience_seconds,
                must_record=must_record,
            )
            if kept is not None:
                return _kept(store, held, kept)
            if was_off:
                store.yield_to(SwapKind.FILE, YieldedSwap(boot_id, held.asked, SWAPPED_OFF))
            host.remove_file(held.path)
    except OSError as error:
        why = f"it could not be removed: {said(error)}; try `moetunectl tune rollback` again"
        return _kept(store, held, Kept(why, going=held.stage is not Stage.MAKING and not _is_on(host, held)))
    if somebody_changed(whose, held.stage):
        return _let_go(store, held, whose, boot_id)
    store.forget_file()
    how = f"{SWAPPED_OFF}; removed" if was_off else "swapped off and removed"
    return file_view(held, "restored", None, how, "none")


def verify_file(host: SwapHost, held: HeldFile, wanted: str | None, detail: str, boot_id: str) -> TunableView:
    """How the file that was made stands now; changes nothing."""
    try:
        whose = whose_file(host, held)
        if whose is Whose.UNMOUNTED:
            return _unmounted(held)
        if held.stage is not Stage.MADE:
            return file_view(held, "planned", wanted, HALF_DONE, None)
        if whose is not Whose.OURS:
            return _not_ours(held, whose)
        if host.is_swapped_on(held.path):
            return file_view(held, "applied", wanted, (held.kept if wanted == "none" else "") or detail)
    except OSError as error:
        return file_view(held, "failed", wanted, f"it cannot be looked at: {said(error)}", None)
    if held.on_boot_id == boot_id:
        return _swapped_off(held, wanted)
    return file_view(held, "planned", wanted, "it is there and not swapped on again yet", "off")


def file_view(held: HeldFile, state: str, wanted: str | None, detail: str, now: str | None = "") -> TunableView:
    """A view of the file; `now` empty: its size."""
    return view(swap_file_name(held.path), state, wanted, format_bytes(held.size_bytes) if now == "" else now, detail)


def _kept(store: SwapStore, held: HeldFile, kept: Kept) -> TunableView:
    record_kept(held, kept, store.hold_file)
    return file_view(held, "failed", "none", kept.why)


def _let_go(store: SwapStore, held: HeldFile, whose: Whose, boot_id: str) -> TunableView:
    """It is no longer ours, and whether there is one is somebody else's matter for the rest of the boot."""
    found = _not_ours(held, whose)
    if store.yielded(SwapKind.FILE) is None:
        store.yield_to(SwapKind.FILE, YieldedSwap(boot_id, held.asked, found.detail))
    store.forget_file()
    return found


def _is_on(host: SwapHost, held: HeldFile) -> bool:
    try:
        return host.is_swapped_on(held.path)
    except OSError:
        return False


def _unmounted(held: HeldFile) -> TunableView:
    why = (
        f"it was made on the file system mounted on {held.mount_point}, and that is not what is under its path now: see to it that "
        "it is, then roll back again; if that file system is gone for good, stop moetuned and remove swap.json from its state directory"
    )
    return file_view(held, "failed", None, why, None)


def _not_ours(held: HeldFile, whose: Whose) -> TunableView:
    if whose is Whose.GONE:
        return file_view(held, "drifted", None, "somebody removed it", "none")
    return file_view(held, "drifted", None, "somebody put another file there, or made it anew", None)


def _swapped_off(held: HeldFile, wanted: str | None) -> TunableView:
    return file_view(held, "drifted", wanted, SWAPPED_OFF + LEFT_ALONE, "off")
