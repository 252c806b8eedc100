"""Bytes of experts one token is expected to read: its active experts' bytes times the share of the experts not resident.

It takes experts as equally likely; the kernel keeps the ones used often, so a healthy backend reads at most this, and a whole
read-ahead window more for each slice at worst. Sources: layout of the model, residency, the cgroup's page cache.
"""

from __future__ import annotations

from moetuned.decide.resident import resident_share
from moetuned.decide.window import Window

UNIT = "bytes"


def compute(window: Window) -> float | None:
    """Bytes a token; None without a layout or without residency."""
    layout, share = window.facts.layout, resident_share(window)
    return None if layout is None or share is None else layout.active_expert_bytes * (1.0 - share)
