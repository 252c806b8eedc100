"""Three lanes for work that blocks: probes, alerts, and the rest. Work never touches state; results come back to the loop.

A lane is one thread with its own queue, so a hook that hangs delays other hooks and nothing else. A resource (a key) has
one piece of work in flight at most; asking again while it runs is refused.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any

log = logging.getLogger(__name__)


class Lane(StrEnum):
    """The lanes."""

    PROBE = "probe"
    ALERT = "alert"
    WORK = "work"


Done = Callable[[Any, BaseException | None], None]
_Job = tuple[str, Callable[[], Any], Done]


class Workers:
    """Runs functions off the loop. `fileno` becomes readable when results wait; then call `collect` in the loop."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._results: queue.SimpleQueue[tuple[str, Done, Any, BaseException | None]] = queue.SimpleQueue()
        self._busy: set[str] = set()
        self._lanes: dict[Lane, queue.SimpleQueue[_Job | None]] = {lane: queue.SimpleQueue() for lane in Lane}
        self._threads = [
            threading.Thread(target=self._run, args=(self._lanes[lane],), name=f"lane-{lane}", daemon=True)
            for lane in Lane
        ]
        for thread in self._threads:
            thread.start()

    def fileno(self) -> int:
        """Readable when `collect` has something to do."""
        return self._read

    def submit(self, lane: Lane, key: str, work: Callable[[], Any], done: Done) -> bool:
        """Queue `work`; `done(result, error)` runs later in the loop. False: the same key is still in flight."""
        if key in self._busy:
            return False
        self._busy.add(key)
        self._lanes[lane].put((key, work, done))
        return True

    def in_flight(self, key: str) -> bool:
        """Whether work for this key has not been collected yet."""
        return key in self._busy

    def collect(self) -> None:
        """Run the `done` of everything that finished. Called by the loop only."""
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                key, done, result, error = self._results.get_nowait()
            except queue.Empty:
                return
            self._busy.discard(key)
            done(result, error)

    def close(self, timeout_seconds: float) -> None:
        """Take no more work and wait at most this long for each lane."""
        for lane in self._lanes.values():
            lane.put(None)
        for thread in self._threads:
            thread.join(timeout_seconds)
        if not any(thread.is_alive() for thread in self._threads):
            os.close(self._read)
            os.close(self._write)

    def _run(self, jobs: queue.SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            key, work, done = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = work()
            except Exception as failure:  # noqa: BLE001  one action may fail in any way; the loop reports it
                error = failure
            self._results.put((key, done, result, error))
            try:
                os.write(self._write, b"x")
            except BlockingIOError:
                pass
            except OSError:
                return
