"""The live picture: what is happening, what has been seen so far, and the status as `moetunectl status` shows it."""

from __future__ import annotations

import shutil
import sys
import time

from moetuned.cli.status import wants_colour
from moetuned.cli.status_view import render
from moetuned.schema.snapshot import Snapshot

_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_PLAIN_SECONDS = 15.0


class Screen:
    """Draws over itself on a terminal; elsewhere says a line when something changes."""

    def __init__(self, *, plain: bool) -> None:
        self._live = sys.stdout.isatty() and not plain
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
        lines = [f"moetuned demo {self._elapsed()}   {self._title}   (Ctrl-C ends it and takes everything back)"]
        lines += [f"  * {text}" for text in self._done[-8:]]
        lines.append("-" * min(size.columns, 100))
        lines += (
            render(snapshot, min(size.columns, 100), wants_colour(), time.time()).splitlines()
            if snapshot is not None
            else ["the daemon does not answer (yet)"]
        )
        visible = lines[: max(1, size.lines - 1)]
        print(_HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in visible) + _CLEAR_BELOW, end="", flush=True)
