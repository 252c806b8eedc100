"""The live picture: what is happening, what has been seen so far, and the status as `moetunectl status` shows it."""

from __future__ import annotations

import os
import shutil
import sys
import time

from moetuned.cli.status_view import render
from moetuned.cli.terminal import wants_colour
from moetuned.schema.snapshot import Snapshot

_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"  # a line that is too long is cut, and does not push the first one out
_WIDEST = 100
_ENDS = "(Ctrl-C ends it and takes everything back)"
_ENDS_CUT = "(Ctrl-C ends it and takes everything back; a higher terminal shows more)"
_PLAIN_SECONDS = 15.0


class Screen:
    """Draws over itself on a terminal; elsewhere says a line when something changes."""

    def __init__(self, *, plain: bool) -> None:
        self._live = sys.stdout.isatty() and not plain and os.environ.get("TERM", "dumb") != "dumb"
        self._title = ""
        self._done: list[str] = []
        self._last = ""
        self._last_at = 0.0
        self._begun = time.monotonic()
        if self._live:
            print("\x1b[2J", end="")

    def scene(self, title: str) -> None:
        """What begins now."""
        self._title = title
        if not self._live:
            print(f"[{self._elapsed()}] {title}", flush=True)

    def seen(self, text: str) -> None:
        """Something that had to be seen was."""
        self._done.append(text)
        if not self._live:
            print(f"[{self._elapsed()}]   seen: {text}", flush=True)

    def note(self, text: str) -> None:
        """Something worth a line that was not asked for."""
        self._done.append(text)
        if not self._live:
            print(f"[{self._elapsed()}]   {text}", flush=True)

    def draw(self, snapshot: Snapshot | None) -> None:
        """The picture now."""
        if self._live:
            self._draw_live(snapshot)
        elif snapshot is not None and snapshot.backends:
            view = snapshot.backends[0]
            line = f"{view.verdict.phase}, {view.verdict.paging}, memory {view.verdict.memory}"
            now = time.monotonic()
            if line != self._last or now - self._last_at > _PLAIN_SECONDS:
                print(f"[{self._elapsed()}]   {view.name} {view.sentence}", flush=True)
                self._last, self._last_at = line, now

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._begun)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def _draw_live(self, snapshot: Snapshot | None) -> None:
        size = shutil.get_terminal_size()
        width, room = min(size.columns, _WIDEST), max(1, size.lines - 1)
        lines = [f"moetuned demo {self._elapsed()}   {self._title}"]
        lines += [f"  * {text}" for text in self._done[-max(2, min(8, size.lines // 6)) :]]
        lines.append("-" * width)
        lines += (
            render(snapshot, width, wants_colour(), time.time()).splitlines()
            if snapshot is not None
            else ["the daemon does not answer (yet)"]
        )
        if len(lines) >= room > 1:
            lines = [*lines[: room - 1], _ENDS_CUT]
        elif room > 1:
            lines.append(_ENDS)
        picture = "".join(f"{_CLEAR_LINE}{line}\n" for line in lines[:room])
        print(f"{_HOME}{_NO_WRAP}{picture}{_WRAP}{_CLEAR_BELOW}", end="", flush=True)
