"""Lanes for work that blocks: probes, alerts, what is kept, what relief needs, managers of backends, and the rest. Work never touches
state; results come back to the loop.

A lane is one thread with its own queue, so what hangs delays its own lane and nothing else. Alerts and what is kept are rare: their
threads are there only while there is something to do, and of alerts several, so that a sink that hangs does not hold up another. A resource
(a key) has one piece of work in flight at most; asking again while it runs is refused, and so is more than a lane can hold.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from moetuned.decide import probe_budget
from moetuned.decide.probe_budget import ProbeBudget
from moetuned.host.clock import Clock
from moetuned.schema.units import format_duration

log = logging.getLogger(__name__)

LANE_LIMIT = 64
"""Most pieces of work that wait in or run on a lane."""
SLOW_WORK_SECONDS = 60.0
"""Work that takes longer than this is told in the status: it is most often a file system that hangs."""


class Lane(StrEnum):
    """The lanes."""

    PROBE = "probe"
    ALERT = "alert"
    KEEP = "keep"
    """Events and alerts to the disk."""
    WORK = "work"
    RELIEF = "relief"
    """Its own: a file system that hangs, or a long look, must not hold up what keeps a backend from being killed."""
    MANAGER = "manager"
    """Units, containers and scripts: one may take minutes."""
    REHEARSE = "rehearse"
    """The self-test."""


SEVERAL: Mapping[Lane, int] = {Lane.ALERT: 8, Lane.KEEP: 1, Lane.REHEARSE: 1}
"""Lanes with threads that come and go, and how many they are at most."""

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
            if lane not in SEVERAL
        ]
        self._passing: dict[Lane, set[threading.Thread]] = {lane: set() for lane in SEVERAL}
        """Threads that end when their lane is empty. Belongs to whoever holds the lock."""
        self._lock = threading.Lock()
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
        job = _Job(lane, key, work, done)
        if lane in SEVERAL:
            if not self._put_passing(job):
                return False
        else:
            self._lanes[lane].put(job)
        self._jobs[key] = job
        return True

    def _put_passing(self, job: _Job) -> bool:
        """Queue it on a lane whose threads come and go. False: there is no thread for it, and none can be had."""
        threads = self._passing[job.lane]
        with self._lock:
            if len(threads) < SEVERAL[job.lane]:
                thread = threading.Thread(
                    target=self._run_passing, args=(job.lane,), name=f"lane-{job.lane}", daemon=True
                )
                try:
                    thread.start()  # it waits for the lock
                    threads.add(thread)
                except RuntimeError as error:
                    if not threads:
                        log.warning("%s is not done: %s", job.key, error)
                        return False
            self._lanes[job.lane].put(job)
        return True

    def in_flight(self, key: str) -> bool:
        """Whether work for this key has not been collected yet."""
        return key in self._jobs

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

    @property
    def notes(self) -> tuple[str, ...]:
        """What has taken too long, for people."""
        return tuple(
            f"{what} has been going on for {format_duration(seconds)}; perhaps a file system hangs"
            for what, seconds in self.running_longer_than(SLOW_WORK_SECONDS)
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
        for name, lane in self._lanes.items():
            if name not in SEVERAL:
                lane.put(None)
        until = self._clock.monotonic() + timeout_seconds
        with self._lock:
            threads = [*self._threads, *(thread for each in self._passing.values() for thread in each)]
        for thread in threads:
            thread.join(max(0.0, until - self._clock.monotonic()))
        if not any(thread.is_alive() for thread in threads):
            os.close(self._wake_up)

    def _run(self, jobs: queue.SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None and not self._closing:
            self._do(job)
            del job

    def _run_passing(self, lane: Lane) -> None:
        while True:
            with self._lock:
                try:
                    job = None if self._closing else self._lanes[lane].get_nowait()
                except queue.Empty:
                    job = None
                if job is None:
                    self._passing[lane].discard(threading.current_thread())
                    return
            self._do(job)
            del job

    def _do(self, job: _Job) -> None:
        job.began = self._clock.monotonic()
        used = time.thread_time()
        try:
            job.result = job.work()
        except Exception as failure:  # noqa: BLE001  one action may fail in any way; the loop reports it
            job.error = failure
        job.cpu_seconds = time.thread_time() - used
        self._results.put(job)
        os.eventfd_write(self._wake_up, 1)


def kind_of(key: str, lane: Lane) -> str:
    """What work is told as in the daemon's own cost."""
    return next((kind for begin, kind in KINDS.items() if key.startswith(begin)), lane.value)
