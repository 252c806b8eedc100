"""Prompt tokens processed, all slots together, since the sample before.

The backend moves the counter once a batch, so it comes in steps: a zero between them does not mean that nothing happens.
Source: /metrics prompt_tokens_total.
"""

from __future__ import annotations

from moetuned.decide.counters import prompt_tokens_processed
from moetuned.decide.window import Window, tick_rate

UNIT = "tokens/s"


def compute(window: Window) -> float | None:
    """Prompt tokens a second; None when unknown."""
    return tick_rate(window, prompt_tokens_processed)
