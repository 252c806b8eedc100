"""Processor time of the backend's process and its threads, in cores: 2 is two busy cores.

Low while a request is worked on means that it waits. Source: /proc/<pid>/stat.
"""

from __future__ import annotations

from moetuned.decide.window import Moment, Window, tick_rate

UNIT = "cores"


def compute(window: Window) -> float | None:
    """Cores since the sample before; None when unknown."""
    ticks = tick_rate(window, _ticks)
    return None if ticks is None else ticks / window.facts.clock_ticks


def _ticks(moment: Moment) -> int | None:
    process = moment.backend.process
    return None if process is None else process.cpu_ticks
