"""How many processes of a memory cgroup the kernel's OOM killer has ended so far, read with one open file.

`memory.events.local` counts the processes of this very cgroup, whoever ran out of memory, it, one above it or the machine; without it
(before Linux 5.2) `memory.events` counts those below it too. v1 has the same in `memory.oom_control` (since 4.13).
"""

from __future__ import annotations

import os

from moetuned.parse.kernel_numbers import line_number

FILES = ("memory.events.local", "memory.events", "memory.oom_control")
_LIMIT_BYTES = 4096


class OomCounter:
    """Of one cgroup. `close` it."""

    def __init__(self, directory: str) -> None:
        """Never raises; a cgroup without such a file counts nothing."""
        self.directory = directory
        self._descriptor = -1
        for name in FILES:
            try:
                self._descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            break

    def read(self) -> int | None:
        """The count; None when it cannot be read (any more)."""
        if self._descriptor < 0:
            return None
        try:
            text = os.pread(self._descriptor, _LIMIT_BYTES, 0).decode("ascii", "replace")
        except OSError:
            return None
        return line_number(text, "oom_kill")

    def close(self) -> None:
        """Give the descriptor back."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
