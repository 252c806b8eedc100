"""The one loop: descriptors, timers and Unix signals on `selectors`, all in one thread that owns all state."""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
from collections.abc import Callable

from moetuned.host.clock import Clock

Callback = Callable[[int], None]


class Loop:
    """Calls back for readable descriptors, due timers and signals. Signals are only written to a pipe by the handler."""

    def __init__(self, clock: Clock) -> None:
        self.selector = selectors.DefaultSelector()
        self._clock = clock
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._running = False
        self._signals: dict[int, Callable[[], None]] = {}
        self._pipe: tuple[int, int] | None = None

    def add(self, descriptor: int, events: int, callback: Callback) -> None:
        """Call `callback(ready_events)` whenever `descriptor` is ready."""
        self.selector.register(descriptor, events, callback)

    def remove(self, descriptor: int) -> None:
        """Stop watching; unknown descriptors are ignored."""
        try:
            self.selector.unregister(descriptor)
        except (KeyError, ValueError):
            pass

    def call_at(self, at: float, callback: Callable[[], None]) -> None:
        """Run once at monotonic time `at` (seconds) or as soon after as possible."""
        heapq.heappush(self._timers, (at, next(self._order), callback))

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        """Run once after `delay` seconds."""
        self.call_at(self._clock.monotonic() + delay, callback)

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop when the process gets the signal. Main thread only."""
        if self._pipe is None:
            self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            self.add(self._pipe[0], selectors.EVENT_READ, self._signalled)
        self._signals[number] = callback
        signal.signal(number, lambda _number, _frame: None)

    def _signalled(self, _events: int) -> None:
        assert self._pipe is not None
        try:
            numbers = os.read(self._pipe[0], 4096)
        except BlockingIOError:
            return
        for number in dict.fromkeys(numbers):
            if (callback := self._signals.get(number)) is not None:
                callback()

    def run(self) -> None:
        """Serve until `stop`."""
        self._running = True
        while self._running:
            self.run_once()

    def run_once(self, longest_wait: float = 60.0) -> None:
        """Wait for the next descriptor or timer, at most `longest_wait` seconds, and serve what is due."""
        wait = longest_wait
        if self._timers:
            wait = min(wait, max(0.0, self._timers[0][0] - self._clock.monotonic()))
        for key, events in self.selector.select(wait):
            if self.selector.get_map().get(key.fd) is key:
                key.data(events)
            self._serve_due()  # between any two clients too: many of them must not make a tick late
        self._serve_due()

    def _serve_due(self) -> None:
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def stop(self) -> None:
        """Leave `run` after what is being served."""
        self._running = False

    def close(self) -> None:
        """Give everything back."""
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)
            for number in self._signals:
                signal.signal(number, signal.SIG_DFL)
            self.remove(self._pipe[0])
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe = None
        self.selector.close()
