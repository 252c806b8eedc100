"""Swapping off what moetuned made, file or zram device: whether it may be, what is recorded, and what is said when it stays on."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import TypeVar

import msgspec

from moetuned.decide.swap_fit import why_not_off
from moetuned.host.swap_devices import Progress
from moetuned.host.swap_host import SwapHost
from moetuned.state.swap_record import HeldFile, HeldZram, Stage, SwapRecordError
from moetuned.state.swap_views import said

_Held = TypeVar("_Held", HeldFile, HeldZram)
STILL_AT_IT = "another process is still swapping it off; roll back again when it is done"


class Kept(msgspec.Struct, frozen=True):
    """Why a swap could not be taken away. `going`: another process swaps it off just now, so it may be off at any moment."""

    why: str
    going: bool = False


def swap_off_recorded(
    host: SwapHost,
    held: _Held,
    path: str,
    name: str,
    *,
    is_on: Callable[[], bool],
    hold: Callable[[_Held], _Held],
    progress: Progress | None,
    patience_seconds: float | None,
    must_record: bool = False,
) -> Kept | None:
    """Why the swap at `path` is still on; None when it is off. `hold` writes the record, `name` is for people. Raises OSError.

    `must_record`: leave it on where the disk does not take the record.
    """
    on = is_on()
    why = why_not_off(name, host.room(path)) if on else None
    if why is not None:
        return Kept(why, going=held.stage is Stage.REMOVING and not host.wait_for_swap_off(path, 0))
    if held.stage is Stage.MADE:
        # So that what is found off or gone after a crash is not taken for somebody else's doing.
        try:
            hold(msgspec.structs.replace(held, stage=Stage.REMOVING))
        except SwapRecordError as error:
            if must_record:
                return Kept(f"it is kept on: {error}")
    if not on:
        return None
    try:
        host.swap_off_slowly(path, progress, patience_seconds)
    except OSError as error:
        if not is_on():
            return None  # whoever swapped it off, and whatever ended that
        if error.errno in (errno.EBUSY, errno.EINVAL):
            return Kept(STILL_AT_IT, going=True)
        return Kept(f"it could not be swapped off: {said(error)}; it is still on, try `moetunectl tune rollback` again")
    return None


def record_kept(held: _Held, kept: Kept, hold: Callable[[_Held], _Held]) -> None:
    """Record why it could not be taken away, as far as the disk lets: the record says all that is needed without it.

    One that another process is swapping off stays recorded as being removed: nobody is to blame when it is off then.
    """
    stage = held.stage
    if stage in (Stage.MADE, Stage.REMOVING):
        stage = Stage.REMOVING if kept.going else Stage.MADE
    with contextlib.suppress(SwapRecordError):
        hold(msgspec.structs.replace(held, stage=stage, kept=kept.why))
