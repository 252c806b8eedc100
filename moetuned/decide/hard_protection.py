"""How much memory may be kept for backends so that nobody is ever made to give it back (memory.min). Pure.

The kernel kills programs before it takes what memory.min keeps, and "putting more memory than generally available under this
protection is discouraged and may lead to constant OOMs" (Documentation/admin-guide/cgroup-v2.rst). So a part of each limit that
more than the backend lives under, the machine's RAM and the limits of the cgroups above it, is never given to it.
"""

from __future__ import annotations

import msgspec

from moetuned.decide.protection import RELEASE_FACTOR, START_FACTOR
from moetuned.parse.config_values import HeadroomLimit
from moetuned.schema.units import format_bytes

RESERVE_BYTES = 2 << 30
"""What a machine needs beside the model: a desktop with a browser, or the services of a server."""
RESERVE_SHARE = 4
"""Of a large machine no less than this part: page tables, slabs and buffers grow with it, and so does what is run on it."""
_SMALL_SHARE = 2
"""Of a machine so small that this part is less than `RESERVE_BYTES`, this part."""


class Use(msgspec.Struct, frozen=True):
    """What holds a limit now. `held_bytes`: what of it cannot be reclaimed whatever is kept, memory in swap included; `own_bytes`: of that
    what those have who are to be kept, each no more than that. None: unknown.
    """

    held_bytes: int | None
    own_bytes: int = 0


def reserve_bytes(limit_bytes: int) -> int:
    """What of a limit stays for all else: a quarter, and 2 GiB unless that is more than half of it."""
    return max(limit_bytes // RESERVE_SHARE, min(RESERVE_BYTES, limit_bytes // _SMALL_SHARE))


def most_bytes(limit_bytes: int) -> int:
    """The most that may be kept below a limit, all backends and everybody else together."""
    return limit_bytes - reserve_bytes(limit_bytes)


def why_not(kept_bytes: int | None, limit_bytes: int | None, of_what: str) -> str | None:
    """Why nothing is kept below a limit of `limit_bytes` where all who are in it would have `kept_bytes` kept; None when that may be.

    None for bytes: unknown, and refused. `of_what`: whose limit, for people. One sentence without an end.
    """
    if limit_bytes is None:
        return f"how much memory {of_what} has is unknown, and so is how much may be kept of it (memory.min)"
    if kept_bytes is None:
        return f"somebody else in {of_what} keeps all that it uses (memory.min is max): how much is left is unknown"
    most = most_bytes(limit_bytes)
    if kept_bytes <= most:
        return None
    return (
        f"{format_bytes(kept_bytes)} would be kept in all, and of the {format_bytes(limit_bytes)} of {of_what} no more than "
        f"{format_bytes(most)} may be: the kernel kills programs before it takes what memory.min keeps"
    )


def why_short(
    kept_bytes: int, use: Use, limit_bytes: int, of_what: str, near: HeadroomLimit, *, is_kept: bool
) -> str | None:
    """Why nothing is kept below a limit that others use so much of that too little would be left; None when there is enough.

    `kept_bytes` as in `why_not`, in the end: what is kept fills with the model. `near`: `limits.near`. `is_kept`: it is kept already.
    The factors are those of what moetuned locks: to begin takes more than to go on, and both end before the detector says near.
    """
    if kept_bytes == 0:
        return None
    if use.held_bytes is None:
        return f"how much of the memory of {of_what} can be reclaimed is unknown, and so is how much may be kept of it (memory.min)"
    others = max(0, use.held_bytes - use.own_bytes)
    left = limit_bytes - others - kept_bytes
    to_stay = int((RELEASE_FACTOR if is_kept else START_FACTOR) * near.of(limit_bytes))
    if left >= to_stay:
        return None
    return (
        f"others use {format_bytes(others)} of the {format_bytes(limit_bytes)} of {of_what} that cannot be reclaimed: beside "
        f"{format_bytes(kept_bytes)} that would be kept {format_bytes(max(0, left))} would be left, and {format_bytes(to_stay)} must be"
    )
