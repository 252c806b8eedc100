"""One piece of blocking work at a time beside the thread that must not wait, for programs without the daemon's lanes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Belongs to the thread that made it. What still runs at the end of the program ends with it."""

    def __init__(self, name: str) -> None:
        """`name`: of its thread, for people who look for what a process does."""
        self._name = name
        self._thread: threading.Thread | None = None
        self._results: list[T] = []

    @property
    def busy(self) -> bool:
        """Whether something runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], T]) -> bool:
        """Do `work`; False, and nothing is done, while the last one still runs or nobody took its result."""
        if self.busy or self._results:
            return False
        self._results = results = []

        def run() -> None:
            results.append(work())

        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()
        return True

    def take(self) -> T | None:
        """The result, once; None while there is none."""
        return self._results.pop() if self._results else None

    def wait(self, timeout_seconds: float) -> None:
        """Until what runs is done, or the time is over."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)
