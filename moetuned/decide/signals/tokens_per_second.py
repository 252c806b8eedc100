"""Tokens the backend generates, all slots together, over the last three seconds.

From the slots' own counters while the same requests are in decode; otherwise, when requests are shorter than a few ticks, from
decode calls times busy slots, and then only from one call a second on, so that a long prompt is not mistaken for slow decode.
Of a backend of kind generic, from the counter that its entry in the config names. Unknown while it is idle or processes a prompt.
Sources: /slots, /metrics n_decode_total.
"""

from __future__ import annotations

from moetuned.decide.counters import busy_slots, decode_calls, tokens_generated
from moetuned.decide.decode_progress import decode_progress
from moetuned.decide.window import Window, last_seconds, rate

UNIT = "tokens/s"

SECONDS = 3.0
MIN_SECONDS = 0.9
MIN_CALLS_PER_SECOND = 1.0


def compute(window: Window) -> float | None:
    """Tokens a second; None when it does not decode or the time is too short to tell."""
    progress = decode_progress(window, SECONDS)
    if progress is not None and progress.seconds >= MIN_SECONDS:
        return progress.tokens / progress.seconds
    generated = rate(last_seconds(window, SECONDS), tokens_generated)
    if generated:
        return generated
    calls, busy = rate(last_seconds(window, SECONDS), decode_calls), busy_slots(window.now)
    return calls * busy if calls is not None and busy and calls >= MIN_CALLS_PER_SECOND else None
