"""Time behind a protocol, so that tests need not wait."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Clocks, in seconds."""

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC: for intervals."""
        ...

    def wall(self) -> float:
        """Unix time: for people."""
        ...


class RealClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def wall(self) -> float:
        """See `Clock.wall`."""
        return time.time()
