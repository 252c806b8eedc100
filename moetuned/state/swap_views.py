"""What became of a swap that moetuned makes, for people and programs."""

from __future__ import annotations

import errno

from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import SwapStep
from moetuned.state.tuning_views import TAKE_UP

SWAPPED_OFF = "somebody swapped it off"
LEFT_ALONE = "; left alone"
HALF_DONE = "it is being made or taken away, or moetuned was ended while it did that"
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


def said(error: Exception) -> str:
    """What went wrong, for the end of a sentence."""
    if isinstance(error, OSError) and error.errno in _SAID:
        return _SAID[error.errno]
    return (isinstance(error, OSError) and error.strerror) or str(error)


def view(name: str, state: str, wanted: str | None, now: str | None, detail: str) -> TunableView:
    """A view of a swap: what was there before moetuned is always none."""
    return TunableView(name=name, state=state, wanted=wanted, now=now, original="none", detail=detail)


def yielded_view(name: str, wanted: str | None, why: str) -> TunableView:
    """A swap that is somebody's to decide about since they took it away."""
    return view(name, "yielded", wanted, None, f"{why}; moetuned leaves it so until {TAKE_UP}")


def with_priority(step: SwapStep, priority: int | None) -> str:
    """Why a swap is kept; another priority than the wished one stays, as changing it would mean swapping off."""
    if step.priority == priority:
        return step.why
    had = "the kernel's choice" if priority is None else priority
    return f"{step.why}; its priority stays {had} until it is made anew"
