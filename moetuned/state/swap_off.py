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
) -> str | None:
    """Why the swap at `path` is still on; None when it is off. `hold` writes the record, `name` is for people. Raises OSError."""
    on = is_on()
    why = why_not_off(name, host.room(path)) if on else None
    if why is not None:
        return why
    if held.stage is Stage.MADE:
        # So that what is found off or gone after a crash is not taken for somebody else's doing.
        with contextlib.suppress(SwapRecordError):
            hold(msgspec.structs.replace(held, stage=Stage.REMOVING))
    if not on:
        return None
    try:
        host.swap_off_slowly(path, progress, patience_seconds)
    except OSError as error:
        if error.errno != errno.EINVAL:
            return f"it could not be swapped off: {said(error)}; it is still on, try `moetunectl tune rollback` again"
        if is_on():
            return "another process is swapping it off just now; roll back again when it is done"
    return None


def record_kept(held: _Held, why: str, hold: Callable[[_Held], _Held]) -> None:
    """Record why it could not be taken away, as far as the disk lets: the record says all that is needed without it."""
    stage = Stage.MADE if held.stage is Stage.REMOVING else held.stage
    with contextlib.suppress(SwapRecordError):
        hold(msgspec.structs.replace(held, stage=stage, kept=why))
