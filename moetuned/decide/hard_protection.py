"""How much memory may be kept for backends so that nobody is ever made to give it back (memory.min). Pure.

The kernel kills programs before it takes what memory.min keeps, and "putting more memory than generally available under this
protection is discouraged and may lead to constant OOMs" (Documentation/admin-guide/cgroup-v2.rst). So a part of each limit that
more than the backend lives under, the machine's RAM and the limits of the cgroups above it, is never given to it.
"""

from __future__ import annotations

from moetuned.schema.units import format_bytes

RESERVE_BYTES = 2 << 30
"""What a machine needs beside the model: a desktop with a browser, or the services of a server."""
RESERVE_SHARE = 4
"""Of a large machine no less than this part: page tables, slabs and buffers grow with it, and so does what is run on it."""
_SMALL_SHARE = 2
"""Of a machine so small that this part is less than `RESERVE_BYTES`, this part."""


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
