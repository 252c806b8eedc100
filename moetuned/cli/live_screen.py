"""A terminal that is drawn on as a whole: keys come at once, only what changed is written, and it is given back as it was.

Everything goes through a descriptor of its own that never blocks: a terminal that takes nothing (Ctrl-S, a connection that hangs) holds up
neither keys nor signals, and gets the newest picture once it takes something again. Sequences are those of ECMA-48 and xterm, which
also the Linux console, screen and tmux know.
"""

from __future__ import annotations

import contextlib
import os
import select
import termios
from collections.abc import Sequence
from typing import Any

from moetuned.cli.styled_line import Line, difference

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[0m\x1b[2J"
"""The other screen, no cursor, lines that are too long are cut, everything clear."""
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h"
_BACK = "\x1b[?1049l"
_CANCEL = b"\x18"
"""Ends a sequence of which only a part was taken."""
_LEAVE_SECONDS = 0.5
_FALLBACK_SIZE = (80, 24)
_LFLAG, _CC = 3, 6


class TerminalGone(Exception):  # noqa: N818
    """There is no terminal any more."""


class LiveScreen:
    """The terminal of `descriptor`. `enter` takes it, `leave` gives it back; both can be done again and again."""

    def __init__(self, descriptor: int, *, colour: bool, encoding: str = "utf-8") -> None:
        """Raises OSError where it is no terminal."""
        self._colour = colour
        self._encoding = encoding
        try:
            # Not the one we were given: others share that, and a flag set there would stay set when we are killed.
            path = f"/proc/self/fd/{descriptor}"
            self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # the terminal is another user's (su)
            self._descriptor = os.dup(descriptor)
        try:
            self._modes: list[Any] = termios.tcgetattr(self._descriptor)
        except termios.error as error:
            os.close(self._descriptor)
            raise OSError(*error.args) from error
        self._shown: list[Line] = []
        self._out = b""
        self._entered = False

    def fileno(self) -> int:
        """For a selector."""
        return self._descriptor

    @property
    def pending(self) -> bool:
        """Whether something waits until the terminal takes it."""
        return bool(self._out)

    def size(self) -> tuple[int, int]:
        """Columns and rows now."""
        try:
            columns, rows = os.get_terminal_size(self._descriptor)
        except OSError:
            return _FALLBACK_SIZE
        return columns or _FALLBACK_SIZE[0], rows or _FALLBACK_SIZE[1]

    def enter(self) -> None:
        """Take the terminal; what was on it is not to be seen until `leave`. Also after somebody else changed it. Raises TerminalGone."""
        if not self._entered:
            self._modes = self._read_modes()
        wanted = [*self._modes[:_CC], list(self._modes[_CC])]
        wanted[_LFLAG] &= ~(termios.ICANON | termios.ECHO)  # Ctrl-C and Ctrl-Z stay signals
        wanted[_CC][termios.VMIN], wanted[_CC][termios.VTIME] = 1, 0
        self._set_modes(wanted)
        self._entered = True
        self._out = (_CANCEL if self._out else b"") + self._encoded(_ENTER)
        self._shown = []
        self.flush()

    def leave(self) -> None:
        """Give it back: its modes at once, its picture if it takes anything within half a second. Never raises."""
        if not self._entered:
            return
        self._entered = False
        with contextlib.suppress(TerminalGone):
            self._set_modes(self._modes)
            _, rows = self.size()
            bottom = f"\x1b[{rows};1H\r\n"  # where there is no other screen, what comes next stands below
            self._out = (_CANCEL if self._out else b"") + self._encoded(_LEAVE + bottom + _BACK)
            while self._out:
                _, ready, _ = select.select([], [self._descriptor], [], _LEAVE_SECONDS)
                if not ready:
                    break
                self.flush()
        self._out = b""

    def close(self) -> None:
        """Give it back for good."""
        self.leave()
        os.close(self._descriptor)

    def draw(self, lines: Sequence[Line], *, anew: bool = False) -> None:
        """Show these lines; `anew`: whatever stands there. While it still takes the last picture nothing is done."""
        if anew:
            self._out += self._encoded("\x1b[0m\x1b[2J")
            self._shown = []
        elif self._out:
            return
        self._out += self._encoded(difference(self._shown, lines, colour=self._colour))
        self._shown = list(lines)
        self.flush()

    def flush(self) -> None:
        """Write what it takes now. Raises TerminalGone."""
        while self._out:
            try:
                written = os.write(self._descriptor, self._out)
            except BlockingIOError:
                return
            except OSError as error:
                raise TerminalGone from error
            self._out = self._out[written:]

    def read(self) -> bytes:
        """Keys that were typed; b"" for none. Raises TerminalGone."""
        try:
            data = os.read(self._descriptor, 1024)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise TerminalGone from error
        if not data:
            raise TerminalGone
        return data

    def _read_modes(self) -> list[Any]:
        try:
            return termios.tcgetattr(self._descriptor)
        except termios.error as error:
            raise TerminalGone from error

    def _set_modes(self, modes: list[Any]) -> None:
        try:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, modes)
        except termios.error as error:
            raise TerminalGone from error

    def _encoded(self, text: str) -> bytes:
        return text.encode(self._encoding, "replace")
