"""The metrics as a file for node_exporter's textfile collector: written in a lane, off the tick's way, and removed at stop."""

from __future__ import annotations

import logging
from collections.abc import Callable

from moetuned.daemon.workers import Lane, Workers
from moetuned.schema.config import Metrics
from moetuned.schema.snapshot import Snapshot
from moetuned.schema.units import parse_duration

log = logging.getLogger(__name__)


class MetricFile:
    """Belongs to the loop's thread. `notes`: what stands in its way, for the status.

    What cannot be written harms nothing: it is said once, tried again at the next time, and what was there stays; its age tells
    (`moetuned_snapshot_time_seconds`).
    """

    def __init__(self, workers: Workers, snapshot: Callable[[], Snapshot | None]) -> None:
        self._workers = workers
        self._snapshot = snapshot
        self._path: str | None = None
        self._every_seconds = 0.0
        self._next = 0.0
        self._written: dict[str, tuple[int, int]] = {}
        """What was written and not removed since, by path: device and inode."""
        self.notes: tuple[str, ...] = ()

    def configure(self, wanted: Metrics) -> None:
        """At start and at each reload. A file under a name that is not wanted any more is removed."""
        self._every_seconds = parse_duration(wanted.every)
        if wanted.textfile != self._path:
            self._path, self._next, self.notes = wanted.textfile, 0.0, ()

    def tick(self, now: float) -> None:
        """After each look, at `now` (monotonic seconds)."""
        for path in [path for path in self._written if path != self._path]:
            self._submit(path, None)
        if self._path is None or now < self._next:
            return
        snapshot = self._snapshot()
        if snapshot is not None:
            self._next = now + self._every_seconds
            self._submit(self._path, snapshot)

    def close(self) -> None:
        """At the very end, after the lanes: nobody may take what is old for what is."""
        for path in list(self._written):
            if self._workers.in_flight(_key(path)):
                log.warning("%s is still being written and stays behind", path)
                continue
            try:
                _remove(path, self._written.pop(path))
            except OSError as error:
                log.warning("%s stays behind: %s", path, _why(error))

    def _submit(self, path: str, snapshot: Snapshot | None) -> None:
        """Have it written, or removed where `snapshot` is None."""
        made = self._written.get(path)

        def write(told: Snapshot) -> tuple[int, int]:
            # Not before: a daemon that nobody asks for metrics does without them.
            from moetuned.api.metrics import render
            from moetuned.host.published_file import publish

            return publish(path, render(told))

        def written(identity: tuple[int, int] | None, error: BaseException | None) -> None:
            if identity is not None:
                self._written[path] = identity
            self._tell(path, error)

        def removed(_result: object, error: BaseException | None) -> None:
            self._written.pop(path, None)
            if error is not None:
                log.warning("%s stays behind: %s", path, _why(error))

        if snapshot is not None:
            self._workers.submit(Lane.WORK, _key(path), lambda: write(snapshot), written)
        elif made is not None:
            self._workers.submit(Lane.WORK, _key(path), lambda: _remove(path, made), removed)

    def _tell(self, path: str, error: BaseException | None) -> None:
        if path != self._path:
            return
        if error is None:
            if self.notes:
                log.info("the metrics are written to %s again", path)
            self.notes = ()
            return
        said = f"metrics.textfile: {path} cannot be written: {_why(error)}"
        if (said,) != self.notes:
            log.warning("%s", said)
            self.notes = (said,)


def _remove(path: str, made: tuple[int, int]) -> None:
    from moetuned.host.published_file import unpublish

    unpublish(path, made)


def _why(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _key(path: str) -> str:
    return f"writing the metrics to {path}"
