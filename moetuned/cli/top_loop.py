"""The loop of `moetunectl top`: waits for keys, signals and looks, and draws. Looks are made in a thread of their own, which may hang."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

import msgspec

from moetuned.api.errors import DaemonError
from moetuned.cli.live_screen import LiveScreen, TerminalGone
from moetuned.cli.top_keys import keys_of, lone_escape
from moetuned.cli.top_state import TopState, ordered, press
from moetuned.cli.top_view import Screen, Top, draw
from moetuned.schema.units import format_duration

ESCAPE_SECONDS = 0.2
"""What follows Escape sooner belongs to it: over a slow connection a key may come in pieces."""
SILENT_SECONDS = 3.0
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_WATCHED = (*_ENDING, signal.SIGINT, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


class Looker:
    """Makes a look when it is told to, in its own thread; `fileno` is readable once there is something new."""

    def __init__(self, look: Callable[[], Top]) -> None:
        self._look = look
        self._ask = threading.Event()
        self._found: Top | str | None = None
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._asked_at: float | None = None
        threading.Thread(target=self._run, name="looks", daemon=True).start()

    def fileno(self) -> int:
        """For a selector."""
        return self._reader

    @property
    def waits_since(self) -> float | None:
        """Since when a look is under way (monotonic seconds); None: none is."""
        return self._asked_at

    def ask(self) -> None:
        """Have a look made, unless one is under way."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._ask.set()

    def take(self) -> Top | str | None:
        """What was found: a picture, or the sentence why there is none; None: nothing new."""
        try:
            os.read(self._reader, 64)
        except BlockingIOError:
            return None
        self._asked_at = None
        return self._found

    def _run(self) -> None:
        while True:
            self._ask.wait()
            self._ask.clear()
            try:
                self._found = self._look()
            except DaemonError as error:
                self._found = str(error)
            os.write(self._writer, b".")


class _Signals:
    """Signals as bytes of a pipe, so that they wake the loop and are dealt with there."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before: dict[int, Any] = {}
        self._wakeup = -1

    def __enter__(self) -> Self:
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in _WATCHED:
            self._before[number] = signal.signal(number, _noted)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._reader)
        os.close(self._writer)

    def fileno(self) -> int:
        return self._reader

    def take(self) -> bytes:
        try:
            return os.read(self._reader, 64)
        except BlockingIOError:
            return b""


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The byte in the pipe is all."""


class Loop:
    """One person at one terminal."""

    def __init__(
        self, screen: LiveScreen, looker: Looker, first: Top, state: TopState, interval_seconds: float, *, unicode: bool
    ) -> None:
        self._screen = screen
        self._looker = looker
        self._top = first
        self._state = state
        self._interval_seconds = interval_seconds
        self._unicode = unicode
        self._next_look = time.monotonic() + interval_seconds
        self._heard_at = time.monotonic()
        self._trouble: str | None = None
        self._rest, self._rest_at = b"", 0.0
        self._anew = False
        self._signals = _Signals()

    def run(self) -> int | None:
        """Until it is quit; the signal by which it has to end, None: none."""
        with self._signals:
            try:
                self._screen.enter()
                return self._run()
            except TerminalGone:
                return None
            finally:
                self._screen.leave()

    def _run(self) -> int | None:
        while not self._state.quit:
            self._draw()
            ready = self._wait()
            if self._signals in ready:
                for number in self._signals.take():
                    if number in _ENDING:
                        return number
                    if number == signal.SIGINT:
                        return None
                    self._changed(number)
            if self._looker in ready:
                self._hear(self._looker.take())
            if self._screen in ready:
                self._typed(self._screen.read())
            elif self._rest and time.monotonic() - self._rest_at >= ESCAPE_SECONDS:
                self._press(lone_escape(self._rest))
                self._rest = b""
            now = time.monotonic()
            if now >= self._next_look and not self._state.paused:
                self._looker.ask()
                self._next_look = now + self._interval_seconds
        return None

    def _wait(self) -> list[_Signals | Looker | LiveScreen]:
        """What can be read; comes back in time for the next look."""
        wait = max(0.0, self._next_look - time.monotonic()) if not self._state.paused else self._interval_seconds
        wait = min(wait, ESCAPE_SECONDS) if self._rest else wait
        sources: list[_Signals | Looker | LiveScreen] = [self._signals, self._looker, self._screen]
        ready, writable, _ = select.select(sources, sources[2:] if self._screen.pending else [], [], wait)
        if writable:
            self._screen.flush()
        return ready

    def _changed(self, number: int) -> None:
        """The terminal's size changed, or it was given away and came back."""
        if number == signal.SIGTSTP:
            self._screen.leave()
            handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)  # comes back from here when it goes on
            signal.signal(signal.SIGTSTP, handler)
            self._screen.enter()
        elif number == signal.SIGCONT:
            self._screen.enter()
        self._anew = True

    def _hear(self, found: Top | str | None) -> None:
        if self._state.paused:
            return
        if isinstance(found, Top):
            self._top, self._trouble, self._heard_at = found, None, time.monotonic()
        elif found is not None:
            self._trouble = found

    def _typed(self, data: bytes) -> None:
        keys, self._rest = keys_of(self._rest + data)
        self._rest_at = time.monotonic()
        self._press(keys)

    def _press(self, keys: list[str]) -> None:
        for key in keys:
            if key == "redraw":
                self._anew = True
                continue
            backends = () if self._top.snapshot is None else self._top.snapshot.backends
            names = [one.name for one in ordered(backends, self._state.sort)]
            paused = self._state.paused
            self._state = press(self._state, key, names)
            if paused and not self._state.paused:
                self._next_look = time.monotonic()

    def _draw(self) -> None:
        columns, rows = self._screen.size()
        top = msgspec.structs.replace(self._top, trouble=self._why_old())
        lines = draw(top, self._state, Screen(columns, rows, self._unicode), time.time())
        self._screen.draw(lines, anew=self._anew)
        self._anew = False

    def _why_old(self) -> str | None:
        now, asked = time.monotonic(), self._looker.waits_since
        silent = format_duration(round(now - self._heard_at))
        if self._trouble is not None:
            return f"No answer for {silent} (it goes on by itself): {self._trouble}"
        if asked is not None and now - asked >= SILENT_SECONDS:
            return f"No answer for {silent}."
        return None


def end_by(number: int) -> None:
    """End as the signal would have ended it, so that who waits for it sees why."""
    signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(os.getpid(), number)
