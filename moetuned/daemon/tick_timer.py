"""When the next look is due: on a fixed grid, and sooner when something happened."""

from __future__ import annotations

from collections.abc import Callable

from moetuned.daemon.loop import Loop
from moetuned.host.clock import Clock

APART_SECONDS = 0.25
"""Looks are at least so far apart, however often something happens: rates over less would be noise."""


class TickTimer:
    """Calls `tick` when it is due; `tick` calls `begin` first and `next` at its end. Belongs to the loop's thread."""

    def __init__(self, loop: Loop, clock: Clock, tick: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._tick = tick
        self._began: float | None = None
        self._turn = 0
        self.due: float = clock.monotonic()

    def begin(self, now: float) -> tuple[float, float]:
        """A look begins: how much later than due, and how long after the one before (0: there was none). Seconds."""
        late = max(0.0, now - self.due)
        since = 0.0 if self._began is None else now - self._began
        self._began = now
        if now < self.due:  # it was asked for
            self.due = now
        return late, since

    def next(self, interval_seconds: float) -> None:
        """The next is due `interval_seconds` after this one was. A late one is not made up for by a burst."""
        self._set(max(self.due + interval_seconds, self._clock.monotonic() + interval_seconds / 10))

    def sooner(self) -> None:
        """Something happened: look at once, or as soon as the last look is long enough ago."""
        at = self._clock.monotonic()
        if self._began is not None:
            at = max(at, self._began + APART_SECONDS)
        if at < self.due:
            self._set(at)

    def _set(self, at: float) -> None:
        self._turn += 1
        self.due = at
        turn = self._turn

        def due() -> None:
            if turn == self._turn:
                self._tick()

        self._loop.call_at(at, due)
