"""The zram device's life: added, set up, found again after a crash, taken away. It is gone with a boot."""

from __future__ import annotations

import errno

import msgspec

from moetuned.decide.swap_plan import ZRAM_NAME
from moetuned.host.swap_devices import Progress
from moetuned.host.swap_host import SwapHost
from moetuned.host.zram_devices import zram_path
from moetuned.parse.swaps import zram_number
from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import SwapKind, SwapStep
from moetuned.schema.units import format_bytes
from moetuned.state.swap_file import Whose, somebody_changed
from moetuned.state.swap_off import STILL_AT_IT, Kept, record_kept, swap_off_recorded
from moetuned.state.swap_record import HeldZram, Stage, SwapRecordError, SwapStore, YieldedSwap
from moetuned.state.swap_views import HALF_DONE, LEFT_ALONE, SWAPPED_OFF, said, view, with_priority


def whose_zram(host: SwapHost, held: HeldZram, boot_id: str) -> Whose:
    """Whether the device of the recorded number is the one that was added. Raises OSError.

    Numbers are given again at once, sequence numbers never. Somebody may also have reset our device and set it up for themselves:
    ours has the recorded size and UUID, or no size yet. Of a process that ended while it added one it is only known
    which number the kernel would give: an empty device of that number holds nothing that could be lost.
    """
    if held.boot_id != boot_id:
        return Whose.GONE
    look = host.look_at_zram(held.expected if held.number is None else held.number)
    if look is None:
        return Whose.GONE
    if held.number is None:
        return Whose.OURS if look.size_bytes == 0 else Whose.FOREIGN
    if look.sequence != held.sequence:
        return Whose.FOREIGN
    if look.size_bytes == 0:
        return Whose.OURS
    signed = look.uuid == held.uuid or (look.blank and held.stage is Stage.ADDED)
    return Whose.OURS if look.size_bytes == held.size_bytes and signed else Whose.FOREIGN


def make_zram(host: SwapHost, store: SwapStore, step: SwapStep, boot_id: str) -> TunableView:
    """Add a device and swap it on; what was begun is taken back when that fails. Each step is in the record before."""
    try:
        if not host.zram_loaded():
            store.hold_module(boot_id)
            host.load_zram()
        held = store.hold_zram(
            HeldZram(
                boot_id=boot_id,
                uuid=host.new_uuid(),
                size_bytes=step.size_bytes,
                stage=Stage.MAKING,
                existed=host.zram_numbers(),
                priority=step.priority,
                asked=step.asked,
            )
        )
        number, held = _add(host, store, held)
        host.set_up_zram(number, held.size_bytes)
        host.make_signature(zram_path(number), held.uuid)
        held = store.hold_zram(msgspec.structs.replace(held, stage=Stage.MADE))
        host.swap_on(zram_path(number), held.priority)
        held = store.hold_zram(msgspec.structs.replace(held, on=True))
    except (OSError, SwapRecordError) as error:
        why = f"it could not be made: {said(error)}"
        left = take_zram(host, store, boot_id)
        if left is not None and left.state == "failed":
            why += f"; {left.detail}"
        return view(ZRAM_NAME, "failed", step.wanted, None, why)
    return zram_view(held, "applied", step.wanted, step.why)


def _add(host: SwapHost, store: SwapStore, held: HeldZram) -> tuple[int, HeldZram]:
    number = host.add_zram()
    look = host.look_at_zram(number)
    if look is None or look.sequence is None:
        host.remove_zram(number)
        raise OSError(errno.ENOTSUP, "this kernel does not tell devices apart (diskseq, Linux 5.15)")
    try:
        return number, store.hold_zram(
            msgspec.structs.replace(held, stage=Stage.ADDED, number=number, sequence=look.sequence)
        )
    except SwapRecordError:
        host.remove_zram(number)  # whatever number it got: nothing on the disk tells
        raise


def finish_zram(
    host: SwapHost,
    store: SwapStore,
    boot_id: str,
    progress: Progress | None = None,
    patience_seconds: float | None = None,
) -> TunableView | None:
    """Clear up what an earlier process left half done, and let go of what is no longer ours; a view of what a person should know.

    Raises OSError, SwapRecordError.
    """
    if store.record.module_boot_id not in (None, boot_id):
        store.forget_module()
    held = store.record.zram
    if held is None:
        return None
    if held.boot_id != boot_id:
        store.forget_zram()
        return None
    whose = whose_zram(host, held, boot_id)
    if held.stage is Stage.REMOVING and whose is Whose.OURS and held.number is not None:
        if not host.wait_for_swap_off(zram_path(held.number), patience_seconds):
            return zram_view(held, "failed", None, STILL_AT_IT)
        if is_zram_on(host, held.number):  # it was not finished: whole, and wanted perhaps
            store.hold_zram(msgspec.structs.replace(held, stage=Stage.MADE, on=True))
            return None
    if held.stage is not Stage.MADE:
        left = take_zram(host, store, boot_id, progress, patience_seconds)
        return None if left is None or left.state == "restored" else left
    if whose is Whose.OURS and not _is_empty(host, held):
        return None
    if whose is Whose.OURS:  # the device is still ours to remove
        _yield(store, held, _RESET)
        take_zram(host, store, boot_id)
        return _not_ours(held, _RESET)
    return _let_go(store, held, whose)


def keep_zram(host: SwapHost, store: SwapStore, step: SwapStep, *, take_up: bool = False) -> TunableView:
    """The device that was made is wanted: swap it on if the process before ended just before it could.

    `take_up`: also where somebody swapped it off.
    """
    held = store.record.zram
    assert held is not None
    assert held.number is not None
    try:
        if not is_zram_on(host, held.number):
            if held.on and not take_up:
                _yield(store, held, SWAPPED_OFF)
                return zram_view(held, "drifted", step.wanted, _OFF, "off")
            host.swap_on(zram_path(held.number), held.priority)
        held = store.hold_zram(msgspec.structs.replace(held, on=True, kept="", asked=step.asked))
        store.yield_to(SwapKind.ZRAM, None)
    except (OSError, SwapRecordError) as error:
        return zram_view(held, "failed", step.wanted, f"it could not be swapped on: {said(error)}", "off")
    return zram_view(held, "applied", step.wanted, with_priority(step, held.priority))


def take_zram(
    host: SwapHost,
    store: SwapStore,
    boot_id: str,
    progress: Progress | None = None,
    patience_seconds: float | None = None,
    *,
    must_record: bool = False,
) -> TunableView | None:
    """Swap the device off and remove it, and the module if moetuned loaded it. May take minutes. None: nothing was ours.

    What does not fit into memory, or fails, stays in the record. `must_record`: leave it where the disk does not take the
    record.
    """
    held = store.record.zram
    done = None
    was_off = False
    if held is not None:
        try:
            whose = whose_zram(host, held, boot_id)
            if whose is Whose.OURS:
                number = held.expected if held.number is None else held.number
                was_off = held.stage is Stage.MADE and held.on and not is_zram_on(host, number)
                kept = swap_off_recorded(
                    host,
                    held,
                    zram_path(number),
                    f"{ZRAM_NAME} ({zram_path(number)})",
                    is_on=lambda: is_zram_on(host, number),
                    hold=store.hold_zram,
                    progress=progress,
                    patience_seconds=patience_seconds,
                    must_record=must_record,
                )
                if kept is not None:
                    return _kept(store, held, kept)
                if was_off:
                    _yield(store, held, SWAPPED_OFF)
                host.remove_zram(number)
        except OSError as error:
            why = f"it could not be removed: {said(error)}; try `moetunectl tune rollback` again"
            return _kept(store, held, Kept(why, going=held.number is not None and not is_zram_on(host, held.number)))
        if somebody_changed(whose, held.stage) and held.boot_id == boot_id:
            done = _let_go(store, held, whose)
        else:
            store.forget_zram()
            how = "swapped off and removed" if held.boot_id == boot_id else "gone with the reboot"
            done = zram_view(held, "restored", None, f"{SWAPPED_OFF}; removed" if was_off else how, "none")
    return _unload(host, store, boot_id, done)


def verify_zram(host: SwapHost, held: HeldZram, wanted: str | None, detail: str, boot_id: str) -> TunableView:
    """How the device that was made stands now; changes nothing."""
    try:
        whose = whose_zram(host, held, boot_id)
        if held.boot_id != boot_id or held.stage is not Stage.MADE:
            again = "gone with the reboot, and not made again yet"
            return zram_view(held, "planned", wanted, HALF_DONE if held.boot_id == boot_id else again, "none")
        if whose is not Whose.OURS:
            return _not_ours(held, _FOREIGN[whose])
        if held.number is not None and is_zram_on(host, held.number):
            return zram_view(held, "applied", wanted, (held.kept if wanted == "none" else "") or detail)
    except OSError as error:
        return zram_view(held, "failed", wanted, f"it cannot be looked at: {said(error)}", None)
    if held.on:
        return zram_view(held, "drifted", wanted, _OFF, "off")
    return zram_view(held, "planned", wanted, "it is not swapped on yet", "off")


def is_zram_on(host: SwapHost, number: int) -> bool:
    """Whether the device is a swap in use."""
    active = host.facts(None, look_for_zram=False).active or ()
    return any(zram_number(swap) == number for swap in active)


def zram_view(held: HeldZram, state: str, wanted: str | None, detail: str, now: str | None = "") -> TunableView:
    """A view of the device; `now` empty: its size."""
    return view(ZRAM_NAME, state, wanted, format_bytes(held.size_bytes) if now == "" else now, detail)


_OFF = SWAPPED_OFF + LEFT_ALONE
_RESET = "somebody reset it"
_FOREIGN = {
    Whose.GONE: "somebody removed it",
    Whose.FOREIGN: "somebody set up another device in its place",
}


def _is_empty(host: SwapHost, held: HeldZram) -> bool:
    look = None if held.number is None else host.look_at_zram(held.number)
    return look is not None and look.size_bytes == 0


def _unload(host: SwapHost, store: SwapStore, boot_id: str, done: TunableView | None) -> TunableView | None:
    """Remove the module if moetuned loaded it and nobody has made a device since."""
    loaded_in = store.record.module_boot_id
    if loaded_in is None:
        return done
    detail = "the zram module that moetuned loaded is removed, too"
    if loaded_in == boot_id and host.zram_loaded():
        try:
            if host.zram_numbers():
                detail = "the zram module stays: somebody else uses it"
            else:
                host.unload_zram()
        except OSError as error:
            detail = f"the zram module, which holds nothing, stays: {said(error)}"
    store.forget_module()
    if done is None:
        return view(ZRAM_NAME, "restored", None, "none", detail)
    return msgspec.structs.replace(done, detail=f"{done.detail}; {detail}")


def _kept(store: SwapStore, held: HeldZram, kept: Kept) -> TunableView:
    record_kept(held, kept, store.hold_zram)
    return zram_view(held, "failed", "none", kept.why)


def _yield(store: SwapStore, held: HeldZram, why: str) -> None:
    if store.yielded(SwapKind.ZRAM) is None:
        store.yield_to(SwapKind.ZRAM, YieldedSwap(held.boot_id, held.asked, why))


def _let_go(store: SwapStore, held: HeldZram, whose: Whose) -> TunableView:
    """It is no longer ours, and whether there is one is somebody else's matter for the rest of the boot."""
    _yield(store, held, _FOREIGN[whose])
    store.forget_zram()
    return _not_ours(held, _FOREIGN[whose])


def _not_ours(held: HeldZram, why: str) -> TunableView:
    return zram_view(held, "drifted", None, why, None)
