"""What a process may hold more of at the end than after its warm-up, as data in and sentences out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

GROWTH_BYTES = 1 << 20
MORE_FDS = 2
"""A look may find a question to a backend under way, or a process that is being ended; a leak is far more than that."""
OBJECTS_RATIO = 1.02
"""Counters in events and histories of a bounded length fill up."""


def growth(after_warm_up: Mapping[str, int], at_the_end: Mapping[str, int], rss_bytes: int = GROWTH_BYTES) -> list[str]:
    """A sentence for each of fds, threads, rss (bytes) and, where it was counted, objects that grew by more than it may."""
    allowed = {
        "fds": after_warm_up["fds"] + MORE_FDS,
        "threads": after_warm_up["threads"],
        "rss": after_warm_up["rss"] + rss_bytes,
        "objects": int(after_warm_up.get("objects", 0) * OBJECTS_RATIO),
    }
    return [
        f"{what}: {after_warm_up[what]} after the warm-up, {at_the_end[what]} at the end, {most} allowed"
        for what, most in allowed.items()
        if what in at_the_end and at_the_end[what] > most
    ]


def most(held: Sequence[dict[str, int]]) -> dict[str, int]:
    """The most of each that was held at any look: a process that is being ended holds more than one that runs."""
    return {what: max(one[what] for one in held) for what in held[0]}
