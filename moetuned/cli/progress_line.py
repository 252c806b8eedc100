"""Progress on a terminal, and nothing anywhere else: a bar that also works without UTF-8, and a line for what has no share."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TextIO

from moetuned.cli.residency_view import Style
from moetuned.cli.verify_view import ProgressLine, printable
from moetuned.schema.units import format_bytes, format_duration

QUIET_SECONDS = 1.0
LINE_SECONDS = 10.0
_EVERY_SECONDS = 0.25
_PLAIN = str.maketrans("█░", "#.")


def shows_unicode(stream: TextIO | None) -> bool:
    """Whether the stream can show blocks and shades."""
    encoding = getattr(stream, "encoding", None) or ""
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf16", "utf32")


def width_of_output() -> int:
    """Columns to write for people: those of the terminal, 80 without one, 100 at most."""
    return min(shutil.get_terminal_size().columns, 100)


def style_of(stream: TextIO, *, colour: bool) -> Style:
    """How to draw on this stream."""
    return Style(width_of_output(), colour, shows_unicode(stream))


class Bar:
    """A bar with rate and time left. Drawn from the first call on, at most four times a second."""

    def __init__(self, stream: TextIO, total_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream if stream.isatty() else None
        self._line = ProgressLine(_Plain(stream) if not shows_unicode(stream) else stream, total_bytes, clock)  # type: ignore[arg-type]
        self._clock = clock
        self._drawn_at: float | None = None

    def draw(self, done_bytes: int, what: str = "") -> None:
        """Draw it, where somebody watches."""
        now = self._clock()
        if self._stream is None or (self._drawn_at is not None and now - self._drawn_at < _EVERY_SECONDS):
            return
        self._drawn_at = now
        self._line.draw(done_bytes, what, shutil.get_terminal_size().columns)

    def clear(self) -> None:
        """Take the line away."""
        if self._stream is not None:
            self._line.clear()


class OneLine:
    """A line of text on a terminal, drawn over itself; nothing anywhere else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream if stream.isatty() else None
        self._drawn = 0

    @property
    def is_watched(self) -> bool:
        """Whether anything is drawn at all."""
        return self._stream is not None

    def draw(self, text: str) -> None:
        """Draw `text` in place of what stood there, cut to the terminal's width."""
        if self._stream is None:
            return
        text = text[: max(1, shutil.get_terminal_size().columns - 1)]
        self._stream.write("\r" + text.ljust(self._drawn))
        self._stream.flush()
        self._drawn = len(text)

    def clear(self) -> None:
        """Take the line away."""
        if self._stream is not None and self._drawn:
            self._stream.write("\r" + " " * self._drawn + "\r")
            self._stream.flush()
            self._drawn = 0


class Elapsed:
    """One line for work whose end is not known: what is done and for how long, once it takes more than a second."""

    def __init__(self, stream: TextIO, verb: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = OneLine(stream)
        self._verb = verb
        self._clock = clock
        self._began = clock()
        self._drawn_at = self._began + QUIET_SECONDS - _EVERY_SECONDS
        self.clear = self._line.clear

    def draw(self, name: str) -> None:
        """Say what is being done now."""
        now = self._clock()
        if not self._line.is_watched or now - self._drawn_at < _EVERY_SECONDS:
            return
        self._drawn_at = now
        self._line.draw(f"{self._verb} {printable(name)}, {format_duration(now - self._began)}")


class Lines:
    """Progress where there is no terminal, for a log: a line at first, one when it begins or ends to wait, and one every ten seconds."""

    def __init__(self, stream: TextIO, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._name = printable(name)
        self._clock = clock
        self._said: tuple[float, str] | None = None

    def say(self, done_bytes: int, goal_bytes: int, waits_for: str) -> None:
        """How far it is, `goal_bytes` 0: not known yet. `waits_for`: what it waits for, "" while it goes on."""
        now = self._clock()
        if self._said is not None:
            since = now - self._said[0]
            if since < (QUIET_SECONDS if waits_for != self._said[1] else LINE_SECONDS):
                return
        self._said = now, waits_for
        far = f"{format_bytes(done_bytes)} of {format_bytes(goal_bytes)}" if goal_bytes else ""
        waits = f"waits: {printable(waits_for)}" if waits_for else ""
        self._stream.write(f"{self._name}: {', '.join(filter(None, (far, waits))) or 'begins'}\n")
        self._stream.flush()


class _Plain:
    """A stream for terminals without UTF-8: blocks become ASCII."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(text.translate(_PLAIN))

    def flush(self) -> None:
        self._stream.flush()
