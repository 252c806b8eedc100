"""Words that headlines share: commands to be typed, speeds, who took memory."""

from __future__ import annotations

import re

from moetuned.schema.neighbour import Neighbour
from moetuned.schema.snapshot import BackendView
from moetuned.schema.units import format_bytes

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")
_GREW = "grew"


def shell_word(text: str) -> str:
    """The text as one word of a shell's command line (POSIX, quoting)."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"


def model_word(view: BackendView) -> str:
    """Its model as an argument of a command."""
    return "MODEL" if view.model_path is None else shell_word(view.model_path)


def relief_command(view: BackendView) -> str:
    """What shows how memory can be made free."""
    return f"moetunectl relief plan {shell_word(view.name)}"


def tokens(speed: float) -> str:
    """A speed for people: "6.1 tokens/s"."""
    return f"{speed:.2f} tokens/s" if 0 < speed < 0.095 else f"{speed:.1f} tokens/s"


def grower(neighbours: tuple[Neighbour, ...]) -> Neighbour | None:
    """Who grew most of those that were seen."""
    return max((one for one in neighbours if one.did == _GREW), key=lambda one: one.bytes, default=None)


def reader(neighbours: tuple[Neighbour, ...]) -> Neighbour | None:
    """Who read most of those that were seen."""
    return max((one for one in neighbours if one.did != _GREW), key=lambda one: one.bytes, default=None)


def grew_text(one: Neighbour) -> str:
    """As a clause: "firefox (pid 7) grew 6.0 GiB since 14:02"."""
    return one.text or f"{one.name} grew {format_bytes(one.bytes)}"


def read_text(one: Neighbour) -> str:
    """As a clause: "rsync (pid 812) read 42.0 GiB in the last 5 min"."""
    return one.text or f"{one.name} read {format_bytes(one.bytes)}"
