"""The swap file's life: made, found again after a crash or a reboot, taken away. `state.swap` joins it with zram."""

from __future__ import annotations

import contextlib
import errno
from enum import StrEnum

import msgspec

from moetuned.decide.swap_fit import why_not_off
from moetuned.decide.swap_plan import swap_file_name
from moetuned.host.swap_devices import Progress
from moetuned.host.swap_host import SwapHost
from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import SwapStep
from moetuned.schema.units import format_bytes
from moetuned.state.swap_record import HeldFile, Stage, SwapRecordError, SwapStore

_SAID = {
    errno.ENOSPC: "no room left",
    errno.EPERM: "the kernel refuses it (not root, or a container)",
    errno.EBUSY: "it is in use",
    errno.ETXTBSY: "it is in use as swap",
    errno.EEXIST: "something was put at its path meanwhile; left alone",
    errno.ENOMEM: "there is not enough memory for what it holds",
    errno.EINTR: "it was interrupted",
    errno.ETIMEDOUT: "it took too long and was stopped",
}


class Whose(StrEnum):
    """What stands where ours should be."""

    OURS = "ours"
    GONE = "gone"
    FOREIGN = "foreign"
    UNMOUNTED = "unmounted"


def said(error: Exception) -> str:
    """What went wrong, for the end of a sentence."""
    if isinstance(error, OSError) and error.errno in _SAID:
        return _SAID[error.errno]
    return (isinstance(error, OSError) and error.strerror) or str(error)


def whose_file(host: SwapHost, held: HeldFile, boot_id: str) -> Whose:
    """Whether what is at the path is the file that was made: by inode and by the UUID of its swap signature. Raises OSError.

    The inode number alone is used again at once by another file; so may a name be. A path whose file system is not
    mounted (yet) says nothing.
    """
    look = host.look_at_file(held.path)
    if look is not None and look.regular and (look.inode, look.uuid) == (held.inode, held.uuid):
        same_device = held.boot_id != boot_id or look.device == held.device
        if same_device:
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
    )
    try:
        store.hold_file(held)
        look = host.create_file(held.temporary)
        held = store.hold_file(msgspec.structs.replace(held, device=look.device, inode=look.inode))
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
    whose = whose_file(host, held, boot_id)
    if whose is Whose.UNMOUNTED:
        return _unmounted(held)
    if held.stage is Stage.REMOVING:
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
    store.forget_file()
    return _not_ours(held, whose)


def keep_file(host: SwapHost, store: SwapStore, step: SwapStep, boot_id: str) -> TunableView:
    """The file that was made is wanted: swap it on again after a reboot, unless somebody swapped it off in this one."""
    held = store.record.file
    assert held is not None
    try:
        if host.is_swapped_on(held.path):
            held = store.hold_file(msgspec.structs.replace(held, on_boot_id=boot_id, kept=""))
            return file_view(held, "applied", step.wanted, with_priority(step, held.priority))
        if held.on_boot_id == boot_id:
            return _swapped_off(held, step.wanted)
        look = host.look_at_file(held.path)
        if look is None or look.mode & 0o077 or look.owner != 0 or look.size_bytes != held.size_bytes:
            why = "somebody changed its size, owner or mode, so it is not swapped on; roll back to have it removed"
            return file_view(held, "drifted", step.wanted, why, "off")
        host.swap_on(held.path, held.priority)
        held = store.hold_file(msgspec.structs.replace(held, on_boot_id=boot_id, kept=""))
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
) -> TunableView:
    """Swap the file off and remove it. May take minutes. What does not fit into memory, or fails, stays in the record.

    Works with a full disk: the record has had all that is needed since the file was made.
    """
    held = store.record.file
    assert held is not None
    try:
        whose = whose_file(host, held, boot_id)
        if whose is Whose.UNMOUNTED:
            return _unmounted(held)
        if held.stage is Stage.MAKING:
            host.remove_file(held.temporary)
        if whose is Whose.OURS:
            why = _swap_off(host, store, held, progress, patience_seconds)
            if why is not None:
                return _kept(store, held, why)
            host.remove_file(held.path)
    except OSError as error:
        return _kept(store, held, f"it could not be removed: {said(error)}; try `moetunectl tune rollback` again")
    store.forget_file()
    if (whose is Whose.FOREIGN and held.stage is not Stage.MAKING) or (
        whose is Whose.GONE and held.stage is Stage.MADE
    ):
        return _not_ours(held, whose)
    return file_view(held, "restored", None, "swapped off and removed", "none")


def verify_file(host: SwapHost, held: HeldFile, wanted: str | None, detail: str, boot_id: str) -> TunableView:
    """How the file that was made stands now; changes nothing."""
    try:
        whose = whose_file(host, held, boot_id)
        if whose is Whose.UNMOUNTED:
            return _unmounted(held)
        if held.stage is not Stage.MADE:
            return file_view(held, "planned", wanted, "moetuned was ended while it made it or took it away", None)
        if whose is not Whose.OURS:
            return _not_ours(held, whose)
        if host.is_swapped_on(held.path):
            return file_view(held, "applied", wanted, held.kept or detail)
    except OSError as error:
        return file_view(held, "failed", wanted, f"it cannot be looked at: {said(error)}", None)
    if held.on_boot_id == boot_id:
        return _swapped_off(held, wanted)
    return file_view(held, "planned", wanted, "it is there and not swapped on again yet", "off")


def with_priority(step: SwapStep, priority: int | None) -> str:
    """Why a swap is kept; another priority than the wished one stays, as changing it would mean swapping off."""
    if step.priority == priority:
        return step.why
    had = "the kernel's choice" if priority is None else priority
    return f"{step.why}; its priority stays {had} until it is made anew"


def view(name: str, state: str, wanted: str | None, now: str | None, detail: str) -> TunableView:
    """A view of a swap: what was there before moetuned is always none."""
    return TunableView(name=name, state=state, wanted=wanted, now=now, original="none", detail=detail)


def file_view(held: HeldFile, state: str, wanted: str | None, detail: str, now: str | None = "") -> TunableView:
    """A view of the file; `now` empty: its size."""
    return view(swap_file_name(held.path), state, wanted, format_bytes(held.size_bytes) if now == "" else now, detail)


def _swap_off(
    host: SwapHost, store: SwapStore, held: HeldFile, progress: Progress | None, patience_seconds: float | None
) -> str | None:
    """Why the file is still on; None when it is off. Raises OSError."""
    on = host.is_swapped_on(held.path)
    why = why_not_off(swap_file_name(held.path), host.room(held.path)) if on else None
    if why is not None:
        return why
    if held.stage is Stage.MADE:
        # So that what is found off or gone after a crash is not taken for somebody else's doing.
        with contextlib.suppress(SwapRecordError):
            store.hold_file(msgspec.structs.replace(held, stage=Stage.REMOVING))
    if not on:
        return None
    try:
        host.swap_off_slowly(held.path, progress, patience_seconds)
    except OSError as error:
        if error.errno == errno.EINVAL:
            if not host.is_swapped_on(held.path):
                return None
            return "another process is swapping it off just now; roll back again when it is done"
        return f"it could not be swapped off: {said(error)}; it is still on, try `moetunectl tune rollback` again"
    return None


def _kept(store: SwapStore, held: HeldFile, why: str) -> TunableView:
    stage = Stage.MADE if held.stage is Stage.REMOVING else held.stage
    with contextlib.suppress(SwapRecordError):  # the record says all that is needed without it
        store.hold_file(msgspec.structs.replace(held, stage=stage, kept=why))
    return file_view(held, "failed", "none", why)


def _unmounted(held: HeldFile) -> TunableView:
    why = (
        f"it was made on the file system mounted on {held.mount_point}, and that is not what is under its path now: see to it that "
        "it is, then roll back again; if that file system is gone for good, remove swap.json from the state directory"
    )
    return file_view(held, "failed", None, why, None)


def _not_ours(held: HeldFile, whose: Whose) -> TunableView:
    if whose is Whose.GONE:
        return file_view(held, "drifted", None, "somebody removed it", "none")
    return file_view(held, "drifted", None, "somebody put another file there, or made it anew; left alone", None)


def _swapped_off(held: HeldFile, wanted: str | None) -> TunableView:
    return file_view(held, "drifted", wanted, "somebody swapped it off; left alone", "off")
