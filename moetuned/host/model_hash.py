"""Hashes several files at once in threads, can be stopped at any time, and says how far each got."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from functools import partial

import msgspec

from moetuned.host.file_hash import FileHashError, hash_file
from moetuned.host.sha256_state import HashState

MOST_WORKERS = 4


class HashJob(msgspec.Struct, frozen=True):
    """One file, and where an earlier run got to."""

    path: str
    size_bytes: int
    start: HashState | None = None


class HashOutcome(msgspec.Struct, frozen=True):
    """One file that is finished: its SHA-256, or why there is none in one sentence without the file's name."""

    sha256: str | None = None
    problem: str | None = None


def worker_count(files: int) -> int:
    """How many files to hash at once: half of the processors, so that a backend still finds some, and at most four."""
    return max(1, min(files, len(os.sched_getaffinity(0)) // 2, MOST_WORKERS))


class ModelHash:
    """Files being hashed, in order. What `outcomes`, `states` and `done_bytes` say may be read at any time."""

    def __init__(self, jobs: Sequence[HashJob], workers: int) -> None:
        """Begins at once. `workers`: how many files at a time."""
        self.outcomes: dict[str, HashOutcome] = {}
        self.states: dict[str, HashState] = {job.path: job.start for job in jobs if job.start is not None}
        self._done = {job.path: 0 if job.start is None else job.start.done_bytes for job in jobs}
        self._waiting = list(reversed(jobs))
        self._stopped = False
        self._finished = threading.Event()
        self._lock = threading.Lock()
        self._left = len(jobs)
        if not jobs:
            self._finished.set()
        # Daemon threads: a disk that does not answer must not keep the program from ending.
        self._threads = [
            threading.Thread(target=self._run, name=f"model-hash-{number}", daemon=True)
            for number in range(min(workers, len(jobs)))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def done_bytes(self) -> int:
        """Bytes hashed, those of earlier runs included."""
        return sum(self._done.values())

    @property
    def current(self) -> str | None:
        """The first file that is begun and not finished."""
        return next((path for path in self._done if path not in self.outcomes), None)

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; True when all files are finished."""
        return self._finished.wait(seconds)

    def stop(self, seconds: float) -> None:
        """Let every thread end after its present piece; wait for that at most so long."""
        self._stopped = True
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while not self._stopped:
            with self._lock:
                job = self._waiting.pop() if self._waiting else None
            if job is None:
                return
            try:
                digest = hash_file(job.path, partial(self._follow, job.path), job.start)
            except FileHashError as error:
                self._end(job.path, HashOutcome(problem=str(error)))
            else:
                if digest is not None:
                    self._end(job.path, HashOutcome(digest))

    def _follow(self, path: str, done_bytes: int, state: HashState | None) -> bool:
        self._done[path] = done_bytes
        if state is not None:
            self.states[path] = state
        return not self._stopped

    def _end(self, path: str, outcome: HashOutcome) -> None:
        with self._lock:
            self.outcomes[path] = outcome
            self._left -= 1
            if self._left == 0:
                self._finished.set()
