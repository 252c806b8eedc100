"""How many tokens were generated in an unbroken stretch of decode, and what stretch that was.

Bytes read in prefill say nothing about the cost of a token (a micro-batch touches nearly all experts), so a stretch ends where
a prompt is processed, where a slot changes its request, and where the backend is idle. Moments at which it did not answer
(older builds answer only between batches) are passed over: the next answer counts for them.
"""

from __future__ import annotations

import msgspec

from moetuned.decide.window import Moment, Window, last_seconds
from moetuned.schema.sample import Slot


class DecodeProgress(msgspec.Struct, frozen=True):
    """Tokens generated between the first and the last of `moments`."""

    tokens: float
    seconds: float
    moments: tuple[Moment, ...]


def decode_progress(window: Window, seconds: float) -> DecodeProgress | None:
    """Progress over at most the last `seconds` of unbroken decode; None when its last answer shows no decode."""
    moments: list[Moment] = []
    tokens, later = 0.0, None
    for moment in reversed(last_seconds(window, seconds)):
        slots = _slots(moment)
        if slots is None:
            continue
        if later is not None:
            step = _step(slots, later)
            if step is None:
                break
            tokens += step
        moments.append(moment)
        later = slots
    if len(moments) < 2:
        return None
    return DecodeProgress(tokens, moments[0].at_seconds - moments[-1].at_seconds, tuple(reversed(moments)))


def _slots(moment: Moment) -> tuple[Slot, ...] | None:
    http = moment.backend.http
    return None if http is None else http.slots


def _step(earlier: tuple[Slot, ...], later: tuple[Slot, ...]) -> float | None:
    """Tokens between two answers; None when not both are in the same requests' decode."""
    before = {slot.slot_id: slot for slot in earlier if slot.processing}
    after = [slot for slot in later if slot.processing]
    if not after or len(before) != len(after):
        return None
    counted = 0.0
    for slot in after:
        step = _slot_step(before.get(slot.slot_id), slot)
        if step is None:
            return None
        counted += step
    return counted


def _slot_step(earlier: Slot | None, later: Slot) -> float | None:
    if earlier is None or earlier.task_id != later.task_id:
        return None
    if not earlier.decoded_tokens or later.decoded_tokens is None or later.decoded_tokens < earlier.decoded_tokens:
        return None
    return float(later.decoded_tokens - earlier.decoded_tokens)
