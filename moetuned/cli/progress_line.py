"""Progress on a terminal, and nothing anywhere else: a bar that also works without UTF-8, and a line for what has no share."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TextIO

from moetuned.cli.residency_view import Style
from moetuned.cli.verify_view import ProgressLine, printable
from moetuned.schema.units import format_duration

QUIET_SECONDS = 1.0
_EVERY_SECONDS = 0.25
_PLAIN = str.maketrans("█░", "#.")


def shows_unicode(stream: TextIO | None) -> bool:
    """Whether the stream can show blocks and shades."""
    encoding = getattr(stream, "encoding", None) or ""
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf16", "utf32")


def style_of(stream: TextIO, *, colour: bool) -> Style:
    """How to draw on this stream."""
    return Style(min(shutil.get_terminal_size().columns, 100), colour, shows_unicode(stream))


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


class Elapsed:
    """One line for work whose end is not known: what is done and for how long, once it takes more than a second."""

    def __init__(self, stream: TextIO, verb: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream if stream.isatty() else None
        self._verb = verb
        self._clock = clock
        self._began = clock()
        self._drawn_at = self._began + QUIET_SECONDS - _EVERY_SECONDS
        self._drawn = 0

    def draw(self, name: str) -> None:
        """Say what is being done now."""
        now = self._clock()
        if self._stream is None or now - self._drawn_at < _EVERY_SECONDS:
            return
        self._drawn_at = now
        text = f"{self._verb} {printable(name)}, {format_duration(now - self._began)}"
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


class _Plain:
    """A stream for terminals without UTF-8: blocks become ASCII."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(text.translate(_PLAIN))

    def flush(self) -> None:
        self._stream.flush()
