"""The last seconds of one backend, as signals see them: an unbroken run of moments of one process.

A gap of more than `MAX_GAP_SECONDS`, another pid or another start time begins a new run: rates across it would be lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from moetuned.decide.facts import BackendFacts
from moetuned.schema.sample import BackendSample, MachineSample, Sample

MAX_GAP_SECONDS = 5.0
MAX_MOMENTS = 128


class Moment(msgspec.Struct, frozen=True):
    """One sample as far as it concerns one backend."""

    at_seconds: float
    machine: MachineSample
    backend: BackendSample


class Window(msgspec.Struct, frozen=True):
    """Moments of one process without a gap, oldest first (the last is now), and what is known of the backend."""

    moments: tuple[Moment, ...]
    facts: BackendFacts

    @property
    def now(self) -> Moment:
        """The latest moment."""
        return self.moments[-1]

    @property
    def dt_seconds(self) -> float | None:
        """Time since the moment before; None when there is none."""
        return self.moments[-1].at_seconds - self.moments[-2].at_seconds if len(self.moments) > 1 else None


def window_of(samples: Sequence[Sample], backend: str, facts: BackendFacts) -> Window | None:
    """The unbroken run of moments that ends with the last sample; None when the backend is not in that sample."""
    moments: list[Moment] = []
    for sample in reversed(samples[-MAX_MOMENTS:]):
        for own in sample.backends:
            if own.name == backend:
                break
        else:
            break
        moment = Moment(sample.at_seconds, sample.machine, own)
        if moments and not _continues(moment, moments[-1]):
            break
        moments.append(moment)
    return Window(tuple(reversed(moments)), facts) if moments else None


def _continues(earlier: Moment, later: Moment) -> bool:
    if not 0 < later.at_seconds - earlier.at_seconds <= MAX_GAP_SECONDS:
        return False
    if earlier.backend.cgroup_directory != later.backend.cgroup_directory:
        return False  # a process is started first and joins its cgroup then
    one, other = earlier.backend.process, later.backend.process
    if one is None or other is None:
        return one is other
    return one.pid == other.pid and one.start_ticks == other.start_ticks


def last_seconds(window: Window, seconds: float) -> tuple[Moment, ...]:
    """The moments of the last `seconds` and the one before them, so that their differences span at least `seconds`."""
    start = window.now.at_seconds - seconds
    for position in range(len(window.moments) - 1, -1, -1):
        if window.moments[position].at_seconds <= start + 0.05 * seconds:
            return window.moments[position:]
    return window.moments


def increase(moments: Sequence[Moment], read: Callable[[Moment], float | None]) -> float | None:
    """How far a counter went from the first to the last moment; None when unknown at an end or when it went back."""
    if len(moments) < 2:
        return None
    first, last = read(moments[0]), read(moments[-1])
    return None if first is None or last is None or last < first else last - first


def rate(moments: Sequence[Moment], read: Callable[[Moment], float | None]) -> float | None:
    """Increase of a counter a second of measured time; None as for `increase`."""
    change = increase(moments, read)
    return None if change is None else change / (moments[-1].at_seconds - moments[0].at_seconds)


def trend(moments: Sequence[Moment], read: Callable[[Moment], float | None]) -> float | None:
    """Change a second of a value that may rise and fall; None when unknown at an end."""
    if len(moments) < 2:
        return None
    first, last = read(moments[0]), read(moments[-1])
    if first is None or last is None:
        return None
    return (last - first) / (moments[-1].at_seconds - moments[0].at_seconds)


def tick_rate(window: Window, read: Callable[[Moment], float | None]) -> float | None:
    """Increase of a counter a second between the last two moments."""
    return rate(window.moments[-2:], read)


def stall_ratio(window: Window, read: Callable[[Moment], float | None]) -> float | None:
    """Share of the time between the last two moments, 0 to 1, that a PSI total (microseconds) says was stalled."""
    stalled_us = tick_rate(window, read)
    return None if stalled_us is None else min(1.0, stalled_us / 1e6)


def latest(window: Window, seconds: float, read: Callable[[Moment], float | None]) -> float | None:
    """The newest known value that is at most `seconds` old: for sources that are read more seldom than each tick."""
    oldest = window.now.at_seconds - seconds
    for moment in reversed(window.moments):
        if moment.at_seconds < oldest:
            return None
        value = read(moment)
        if value is not None:
            return value
    return None
