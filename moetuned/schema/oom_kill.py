"""What the kernel log says of a process that its OOM killer ended."""

from __future__ import annotations

import msgspec


class OomKill(msgspec.Struct, frozen=True):
    """One kill. `at_seconds`: since boot, by the log's clock; `limit_of`: the cgroup whose limit was reached, "" the machine's
    memory, None: not said.
    """

    pid: int
    at_seconds: float
    limit_of: str | None = None
