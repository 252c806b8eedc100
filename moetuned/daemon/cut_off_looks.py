"""Looks at who is connected to a backend, from right before it is told to end until it has ended: see `decide.cutting_off`."""

from __future__ import annotations

from collections.abc import Callable

from moetuned.decide import supervision as sv
from moetuned.host.spawn import SupervisedProcess
from moetuned.host.taken_connections import TakenConnections


class CutOffLooks:
    """Belongs to the loop's thread."""

    def __init__(self) -> None:
        self.connections: Callable[[], int | None] = lambda: None
        """How many connections of others to it are open; None: not known."""
        self.uncounted = False
        """Whether an earlier daemon had it told to end already: what that cut off, nobody knows."""
        self._taken: TakenConnections | None = None

    def begin(self, state: sv.Supervision, process: SupervisedProcess | None, *, new: bool = False) -> sv.Supervision:
        """Right before its process (None: it is not known) is told to end. `new`: it has not been seen ready since it was started."""
        self.forget()
        uncounted, self.uncounted = self.uncounted, False
        # First, so that one that comes between the two counts.
        self._taken = None if process is None else TakenConnections(process.identity.pid)
        connections = None if uncounted else self.connections()
        if new and connections is None:
            return state  # It does not listen yet.
        return sv.counted(state, connections)

    def end(self, state: sv.Supervision) -> sv.Supervision:
        """It has ended: nobody can be asked who was connected, only how many came since it was told to."""
        taken, self._taken = self._taken, None
        if taken is None:
            return state
        more = taken.so_far()
        taken.close()
        return sv.counted_on(state, more)

    def forget(self) -> None:
        """Nothing ends any more."""
        if self._taken is not None:
            self._taken.close()
        self._taken = None
