"""What `moetunectl top` shows, look by look: status and history of the daemon, and who else reads and grows."""

from __future__ import annotations

from collections.abc import Callable, Collection

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.cli.top_view import Top
from moetuned.schema.history import BackendHistory, Histories
from moetuned.schema.snapshot import Snapshot
from moetuned.schema.verdict import Verdict
from moetuned.state.history import LONGEST_GAP_SECONDS, History


class Feed:
    """Asks the daemon for its history once, and again after a gap; in between the status goes on with it.

    What an earlier daemon of this boot told stays: all of them go by the machine's monotonic clock.
    """

    def __init__(self, client: Client, others: Callable[[Collection[int]], tuple[str, ...]]) -> None:
        """`others(pids)`: who else reads and grows, but for those processes. Used by one thread."""
        self._client = client
        self._others = others
        self._history = History()

    def look(self) -> Top:
        """One look. Raises DaemonError."""
        snapshot = self._client.status()
        self._follow(snapshot)
        pids = {backend.pid for backend in snapshot.backends if backend.pid is not None}
        return Top(snapshot, self._history.told(), self._others(pids))

    def _follow(self, snapshot: Snapshot) -> None:
        last = self._history.last_seconds
        if last is not None and snapshot.at_seconds < last:  # of another boot, or another machine
            self._history, last = History(), None
        if last is None or snapshot.at_seconds - last > LONGEST_GAP_SECONDS:
            try:
                fill(self._history, self._client.history())
            except DaemonError:  # one of an earlier version keeps none
                pass
        self._history.record(
            snapshot.at_seconds, {backend.name: (backend.signals, backend.verdict) for backend in snapshot.backends}
        )


def fill(history: History, told: Histories) -> None:
    """Record all that was told and is newer than what is there, a step at a time."""
    if told.at_seconds is None:
        return
    count = max((len(one.phase) for one in told.backends), default=0)
    for position in range(count):
        look = {}
        for one in told.backends:
            verdict = _verdict(one, position)
            look[one.backend] = ({name: values[position] for name, values in one.signals.items()}, verdict)
        history.record(told.at_seconds - (count - 1 - position) * told.step_seconds, look)


def _verdict(told: BackendHistory, position: int) -> Verdict | None:
    phase, paging, memory = told.phase[position], told.paging[position], told.memory[position]
    if phase is None or paging is None or memory is None:
        return None
    return Verdict(told.backend, 0.0, phase, paging, memory)
