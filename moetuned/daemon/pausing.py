"""Stops one backend's process and lets it go on: for a second look while memory runs out, or because somebody asked for it.

With it go all others in a cgroup that is the backend's alone: a unit's or a container's first process may be a mere launcher, and the server
run in a session of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from moetuned.daemon.recorded import Recorded
from moetuned.host.clock import Clock
from moetuned.host.own_processes import let_on, stop_others
from moetuned.host.pause_guard import PauseGuard
from moetuned.host.processes import ProcessHandle, ProcessIdentity
from moetuned.schema.config import Backend

log = logging.getLogger(__name__)

PAUSE_SECONDS = 3.0
"""A process that is stopped for a second look is continued after this long, whatever happens."""
PAUSE_AGAIN_SECONDS = 30.0
"""It is not stopped again sooner."""
HELD = "is paused for a moment, because memory runs out"


class Pausable(Recorded):
    """One backend whose process can be stopped for a while. Its memory stays."""

    def __init__(self, config: Backend, clock: Clock, record_directory: str) -> None:
        """See `Recorded`."""
        super().__init__(config, clock, record_directory)
        self.paused_wall_seconds: float | None = None
        """Since when (Unix time) it is paused by hand; None: it is not."""
        self._guard: PauseGuard | None = None
        self._released: PauseGuard | None = None
        self._held_at: float | None = None
        self._stopped: tuple[ProcessIdentity, ...] = ()
        """What was stopped with its process and does not go on yet."""

    @property
    def held(self) -> bool:
        """Whether its process is stopped for a second look."""
        return self._held_at is not None and self._guard is not None

    @property
    def pausable(self) -> bool:
        """Whether it may be stopped for a second look now."""
        rested = self._held_at is None or self._clock.monotonic() - self._held_at >= PAUSE_AGAIN_SECONDS
        return (
            self.process is not None
            and self.paused_wall_seconds is None
            and self._guard is None
            and self._released is None
            and rested
        )

    @property
    def paused(self) -> str | None:
        """Why moetuned has stopped its process, the end of the sentence "NAME …"; None: it has not."""
        if self.paused_wall_seconds is not None:
            since = time.strftime("%H:%M", time.localtime(self.paused_wall_seconds))
            return f"is paused by hand since {since}; it goes on after: moetunectl backend resume {self.config.name}"
        return HELD if self.held else None

    @property
    def held_lately(self) -> bool:
        """Whether its process was stopped for a second look a moment ago: what the last look saw stopped may go on since."""
        return self._held_at is not None and self._clock.monotonic() - self._held_at < PAUSE_SECONDS

    def hold(self) -> None:
        """Stop its process for a second look, for `PAUSE_SECONDS` at most, also when the daemon does not live so long."""
        if not self.pausable or self.process is None:
            return
        self._held_at = self._clock.monotonic()
        try:
            self._guard = PauseGuard(self.process.identity, PAUSE_SECONDS)
        except OSError as error:
            log.warning("%s: it is not paused for a second look: %s", self.config.name, error)
            return
        log.warning("%s: pausing process %d for a second look", self.config.name, self.process.identity.pid)
        self.process.pause()
        self._stop_others(self._guard.also)

    def let_on(self) -> None:
        """Continue what was stopped for a second look; and what was stopped with a process that has ended, for whatever it was."""
        guard, self._guard = self._guard, None
        if guard is not None or self.process is None:
            self._let_others_on()
        if guard is None:
            return
        if self.process is not None and self.paused_wall_seconds is None:
            self.process.resume()
        guard.release()
        self._released = guard

    def pause_by_hand(self) -> None:
        """Stop its process until `resume_by_hand`, also beyond this daemon. Nothing happens when it does not run."""
        if self.process is None:
            return
        if self.paused_wall_seconds is None:
            self._note_paused(self._clock.wall())
        for guard in (self._guard, self._released):
            if guard is not None:  # It would let it on.
                guard.cancel()
        self._guard = self._released = None
        self.process.pause()
        self._stop_others(lambda _identity: None)

    def resume_by_hand(self) -> None:
        """Let its process go on, whoever stopped it."""
        if self.paused_wall_seconds is not None:
            self._note_paused(None)
        if self.process is not None:
            self.process.resume()
            with_it = self._with(self.process.identity)  # also what an earlier daemon stopped
            self._stopped = tuple({*self._stopped, *(handle.identity for handle in with_it)})
            for handle in with_it:
                handle.close()
        self._let_others_on()

    def _with(self, main: ProcessIdentity) -> list[ProcessHandle]:  # noqa: ARG002  of a process that was found nothing else is known
        """All processes in a cgroup that is this backend's alone, to be closed by the caller; none where there is no such cgroup."""
        return []

    def _stop_others(self, before: Callable[[ProcessIdentity], None]) -> None:
        if self.process is not None:
            main = self.process.identity
            self._stopped = tuple({*self._stopped, *stop_others(main, lambda: self._with(main), before)})

    def _let_others_on(self) -> None:
        """Continue what was stopped with its process, which may have ended."""
        stopped, self._stopped = self._stopped, ()
        let_on(stopped)

    def _note_paused(self, wall_seconds: float | None) -> None:
        self.paused_wall_seconds = wall_seconds
        if self._recorded is not None:
            self._amend(
                msgspec.structs.replace(self._recorded, paused_wall_seconds=wall_seconds), "that it is paused by hand"
            )

    def _continue(self) -> None:
        """It was told to end, which only a process that runs does."""
        self.let_on()
        if self.paused_wall_seconds is not None:
            self.resume_by_hand()

    def _end_hold(self) -> None:
        """Time passed: let on what was stopped long enough."""
        if self._held_at is not None and self._clock.monotonic() - self._held_at >= PAUSE_SECONDS:
            self.let_on()
        if self._released is not None and self._released.ended:
            self._released = None
