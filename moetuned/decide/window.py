"""The last seconds of one backend, as signals see them: an unbroken run of moments of one process.

A gap of more than `MAX_GAP_SECONDS`, another pid or another start time begins a new run: rates across it would be lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from moetuned.decide.facts import BackendFacts
from moetuned.decide.moment import Moment, moment_of
from moetuned.schema.sample import BackendSample, Sample

__all__ = [
    "MAX_GAP_SECONDS", "MAX_MOMENTS", "Moment", "Window", "increase", "last_seconds", "latest", "next_window", "once", "rate",
    "stall_ratio", "tick_rate", "trend", "window_of",
]  # fmt: skip

MAX_GAP_SECONDS = 5.0
WINDOW_SECONDS = 60.0
"""As far back as signals look."""
MAX_MOMENTS = 128

T = TypeVar("T")


class Window(msgspec.Struct, frozen=True):
    """Moments of one process without a gap, oldest first (the last is now), and what is known of the backend.

    `known`: what was worked out of it already, see `once`; `spans`: its last seconds, see `last_seconds`.
    """

    moments: tuple[Moment, ...]
    facts: BackendFacts
    known: dict[Callable[[Window], Any], Any] = msgspec.field(default_factory=dict)
    spans: dict[float, tuple[Moment, ...]] = msgspec.field(default_factory=dict)

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
        own = _of_backend(sample, backend)
        if own is None:
            break
        moment = moment_of(sample.at_seconds, sample.machine, own)
        if moments and not _continues(moment, moments[-1]):
            break
        moments.append(moment)
    return Window(tuple(reversed(moments)), facts) if moments else None


def next_window(
    window: Window | None, sample: Sample, backend: str, facts: BackendFacts, keep_seconds: float
) -> Window | None:
    """What `window_of` gives for the samples of the last `keep_seconds`, from what it gave one sample earlier.

    `window`: that of the sample before, None when there was none or the backend was not in it.
    """
    own = _of_backend(sample, backend)
    if own is None:
        return None
    moment = moment_of(sample.at_seconds, sample.machine, own)
    if window is None or not _continues(window.now, moment):
        return Window((moment,), facts)
    first, moments = max(0, len(window.moments) + 1 - MAX_MOMENTS), window.moments
    while first < len(moments) and moment.at_seconds - moments[first].at_seconds > keep_seconds:
        first += 1
    return Window((*moments[first:], moment), facts)


def once(window: Window, work_out: Callable[[Window], T]) -> T:
    """`work_out(window)`, worked out once for this window: for what several signals stand on. By the function: no lambda."""
    known = window.known
    if work_out not in known:
        known[work_out] = work_out(window)
    found: T = known[work_out]
    return found


def _of_backend(sample: Sample, name: str) -> BackendSample | None:
    for own in sample.backends:
        if own.name == name:
            return own
    return None


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
    found = window.spans.get(seconds)
    if found is None:
        found = window.spans[seconds] = window.moments[_position_before(window, seconds) :]
    return found


def _position_before(window: Window, seconds: float) -> int:
    start = window.now.at_seconds - seconds + 0.05 * seconds
    for position in range(len(window.moments) - 1, -1, -1):
        if window.moments[position].at_seconds <= start:
            return position
    return 0


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
