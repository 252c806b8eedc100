"""The last restarts of one backend, for people who ask: why, whether they were made, how long they took."""

from __future__ import annotations

import msgspec

from moetuned.daemon.pausing import Pausable
from moetuned.decide.supervision import LaunchPlan
from moetuned.host.clock import Clock
from moetuned.schema.config import Backend
from moetuned.schema.supervision import Restart, RestartCause

_RESTARTS = 8
"""So many of the last restarts are shown."""


class NotedRestarts(Pausable):
    """Of one backend. Belongs to the loop's thread."""

    def __init__(self, config: Backend, clock: Clock, record_directory: str) -> None:
        """See `Recorded`."""
        super().__init__(config, clock, record_directory)
        self.restarts: tuple[Restart, ...] = ()
        """The last ones since the daemon started, oldest first."""
        self.restarts_by_cause: dict[str, int] = {}
        self.cause: RestartCause | None = None
        """Of the start that is made next, or was made last; None: it was the first."""
        self._restart_at: float | None = None
        self._ended_how: str | None = None

    def _note_restart(self, cause: RestartCause, why: str, before: LaunchPlan, plan: LaunchPlan) -> None:
        self.cause, self._restart_at, self._ended_how = cause, self._clock.monotonic(), None
        self.restarts_by_cause[cause.value] = self.restarts_by_cause.get(cause.value, 0) + 1
        self._keep(Restart(self._clock.wall(), cause, why, before.context_length, plan.context_length))

    def _note_refusal(self, cause: RestartCause, why: str, before: LaunchPlan, failed: str) -> None:
        """One was asked for and not begun: it counts for nothing."""
        context = before.context_length
        self._keep(Restart(self._clock.wall(), cause, why, context, context, failed=failed))

    def _note_failure(self, why: str) -> None:
        """The last restart was not made, `why` is a sentence: who asked for it, or looks later, is to be told."""
        self._restart_at = None
        if self.restarts:
            self.restarts = (*self.restarts[:-1], msgspec.structs.replace(self.restarts[-1], failed=why))

    def _note_took(self, plan: LaunchPlan) -> None:
        """It is ready with `plan`: the last restart is over, if one goes on."""
        if self._restart_at is None:
            return
        took, self._restart_at = self._clock.monotonic() - self._restart_at, None
        last = msgspec.structs.replace(self.restarts[-1], took_seconds=took, context_after=plan.context_length)
        self.restarts = (*self.restarts[:-1], last)

    def _keep(self, one: Restart) -> None:
        self.restarts = (*self.restarts, one)[-_RESTARTS:]
