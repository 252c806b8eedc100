"""Whose refaults they are. The backend's own cgroup answers it; the machine's counter only when nobody else is reading."""

from __future__ import annotations

from moetuned.decide.counters import device_read_bytes, machine_refault_pages, own_refault_pages, process_read_bytes
from moetuned.decide.window import Window, last_seconds, rate

OWN_SHARE = 0.8
"""The backend must have made at least this share of what its disks read, for the machine's refaults to be called its own."""

EXPLAINED = 1.25
"""The machine's refaults may be at most this many times the backend's own reads."""


def refault_rate(window: Window, seconds: float) -> float | None:
    """Refaulted bytes a second that are the backend's; None when unknown or when they may be somebody else's."""
    moments = last_seconds(window, seconds)
    if window.now.backend.cgroup is not None:
        pages = rate(moments, own_refault_pages)
        return None if pages is None else pages * window.facts.page_bytes
    pages, read = rate(moments, machine_refault_pages), rate(moments, process_read_bytes)
    if pages is None or read is None:
        return None
    refaults = pages * window.facts.page_bytes
    if refaults > EXPLAINED * read:
        # More than it read: some are somebody else's. Without any reads of its own, none can be its own.
        return 0.0 if read == 0 else None
    disks = window.facts.disks
    device = rate(moments, lambda moment: device_read_bytes(moment, disks))
    return refaults if device is None or read >= OWN_SHARE * device else None
