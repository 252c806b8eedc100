"""What the daemon itself costs: CPU, memory, open files."""

from __future__ import annotations

import os
import time

import msgspec

from moetuned import __version__
from moetuned.schema.snapshot import SelfView

SELDOM_TICKS = 10
"""What is read from /proc is read once in so many ticks."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class OwnCost(msgspec.Struct):
    """Measured by `begin` and `end` of each tick. None: not known yet. `tick_cpu_seconds`: of the loop's thread in the last tick."""

    ticks: int = 0
    cpu_seconds: float = 0.0
    tick_seconds: float | None = None
    tick_cpu_seconds: float | None = None
    rss_bytes: int | None = None
    open_files: int | None = None
    _began_cpu: float = 0.0

    def begin(self) -> None:
        """A tick begins."""
        self._began_cpu = time.thread_time()

    def end(self, tick_seconds: float) -> None:
        """It is over; `tick_seconds`: by the clock."""
        self.ticks += 1
        self.tick_seconds = tick_seconds
        self.tick_cpu_seconds = time.thread_time() - self._began_cpu
        self.cpu_seconds = time.process_time()
        if self.ticks % SELDOM_TICKS == 1:
            self.rss_bytes, self.open_files = own_rss_bytes(), own_open_files()

    def view(self, started_wall_seconds: float) -> SelfView:
        """What is shown of it; the rest of the view is the caller's."""
        return SelfView(
            pid=os.getpid(),
            version=__version__,
            started_wall_seconds=started_wall_seconds,
            ticks=self.ticks,
            tick_seconds=self.tick_seconds,
            rss_bytes=self.rss_bytes,
            cpu_seconds=self.cpu_seconds,
            tick_cpu_seconds=self.tick_cpu_seconds,
            open_files=self.open_files,
        )


def own_rss_bytes() -> int | None:
    """Resident memory of this process; None when it cannot be read."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(descriptor, 256).split()[1]) * _PAGE_BYTES
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return None


def own_open_files() -> int | None:
    """Open descriptors of this process; None when they cannot be counted."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # the listing's own
    except OSError:
        return None
