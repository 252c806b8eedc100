"""Five lanes for work that blocks: probes, alerts, what relief needs, managers of backends, and the rest. Work never touches state; results come back to the loop.

A lane is one thread with its own queue, so a hook that hangs delays other hooks and nothing else. A resource (a key) has
one piece of work in flight at most; asking again while it runs is refused, and so is more than a lane can hold.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from moetuned.decide import probe_budget
from moetuned.decide.probe_budget import ProbeBudget
from moetuned.host.clock import Clock

log = logging.getLogger(__name__)

LANE_LIMIT = 64
"""Most pieces of work that wait in or run on a lane."""


class Lane(StrEnum):
    """The lanes."""

    PROBE = "probe"
    ALERT = "alert"
    WORK = "work"
    RELIEF = "relief"
    """Its own: a file system that hangs, or a long look, must not hold up what keeps a backend from being killed."""
    MANAGER = "manager"
    """Units, containers and scripts: one may take minutes."""


Done = Callable[[Any, BaseException | None], None]


KINDS = {
    "asking": "http",
    "looking at the residency": "residency",
    "looking at the experts": "experts",
    "looking for running backends": "backends",
    "looking at who else": "neighbours",
    "reading the model": "headers",
    "writing the metrics": "metrics",
}
"""What a piece of work is told as, by how its key begins; anything else by its lane."""
BUDGETED = frozenset({"backends", "neighbours"})
"""Looks at all processes: refused while their common budget is spent. Residency and experts have limits of their own."""


class _Job:
    """One piece of work. `began` and `cpu_seconds` are set by the lane's thread; everything else belongs to the loop's thread."""

    __slots__ = ("began", "cpu_seconds", "done", "error", "key", "lane", "result", "work")

    def __init__(self, lane: Lane, key: str, work: Callable[[], Any], done: Done) -> None:
        self.lane = lane
        self.key = key
        self.work = work
        self.done = done
        self.began: float | None = None
        self.cpu_seconds = 0.0
        self.result: Any = None
        self.error: BaseException | None = None


class Workers:
    """Runs functions off the loop. `fileno` becomes readable when results wait; then call `collect` in the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake_up = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._results: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._jobs: dict[str, _Job] = {}
        self._closing = False
        self.budget: ProbeBudget = probe_budget.full(clock.monotonic())
        """CPU time of what was collected, by kind, and what is left for looks at all processes."""
        self._lanes: dict[Lane, queue.SimpleQueue[_Job | None]] = {lane: queue.SimpleQueue() for lane in Lane}
        self._threads = [
            threading.Thread(target=self._run, args=(self._lanes[lane],), name=f"lane-{lane}", daemon=True)
            for lane in Lane
        ]
        for thread in self._threads:
            thread.start()

    def fileno(self) -> int:
        """Readable when `collect` has something to do."""
        return self._wake_up

    def submit(self, lane: Lane, key: str, work: Callable[[], Any], done: Done) -> bool:
        """Queue `work`; `done(result, error)` runs later in the loop.

        False: its key is in flight, the lane is full, or the budget of such looks is spent.
        """
        if key in self._jobs or self._closing:
            return False
        if kind_of(key, lane) in BUDGETED and not probe_budget.may_look(self.budget, self._clock.monotonic()):
            log.debug("%s is not done: looks at all processes have used up their CPU time", key)
            return False
        if self.waiting(lane) >= LANE_LIMIT:
            log.warning("%s is not done: %d things wait for the %s lane already", key, LANE_LIMIT, lane)
            return False
        self._jobs[key] = job = _Job(lane, key, work, done)
        self._lanes[lane].put(job)
        return True

    def waiting(self, lane: Lane) -> int:
        """Pieces of work of a lane that have not been collected yet."""
        return sum(job.lane is lane for job in self._jobs.values())

    def running_longer_than(self, seconds: float) -> tuple[tuple[str, float], ...]:
        """Key and age (seconds) of work that has been running for longer than this."""
        now = self._clock.monotonic()
        return tuple(
            (job.key, now - job.began)
            for job in self._jobs.values()
            if job.began is not None and now - job.began > seconds
        )

    def collect(self) -> None:
        """Run the `done` of everything that finished. Called by the loop only."""
        try:
            os.eventfd_read(self._wake_up)
        except BlockingIOError:
            pass
        while True:
            try:
                job = self._results.get_nowait()
            except queue.Empty:
                return
            self._jobs.pop(job.key, None)
            kind = kind_of(job.key, job.lane)
            self.budget = probe_budget.charge(
                self.budget, kind, job.cpu_seconds, self._clock.monotonic(), counts=kind in BUDGETED
            )
            job.done(job.result, job.error)

    def close(self, timeout_seconds: float) -> None:
        """Take no more work, begin nothing that waits, and wait at most this long altogether for what runs."""
        self._closing = True
        for lane in self._lanes.values():
            lane.put(None)
        until = self._clock.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, until - self._clock.monotonic()))
        if not any(thread.is_alive() for thread in self._threads):
            os.close(self._wake_up)

    def _run(self, jobs: queue.SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None and not self._closing:
            job.began = self._clock.monotonic()
            used = time.thread_time()
            try:
                job.result = job.work()
            except Exception as failure:  # noqa: BLE001  one action may fail in any way; the loop reports it
                job.error = failure
            job.cpu_seconds = time.thread_time() - used
            self._results.put(job)
            os.eventfd_write(self._wake_up, 1)
            del job


def kind_of(key: str, lane: Lane) -> str:
    """What work is told as in the daemon's own cost."""
    return next((kind for begin, kind in KINDS.items() if key.startswith(begin)), lane.value)
