"""The last ten minutes of each backend in memory: a value every two seconds of what `moetunectl top` draws, in arrays of a fixed size.

A backend costs 17 KiB (300 times seven eight-byte numbers and three states), however long the daemon runs. Numbers are rounded
when they are kept and not each time they are told: who asks again and again must not hold up the loop. Signals are only asked for
when there is something to keep: those that no verdict needs are worked out for nothing else.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

from moetuned.schema.history import HISTORY_SECONDS, HISTORY_STEP_SECONDS, BackendHistory, Histories
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict

HISTORY_SIGNALS = (
    "process_read_bytes_per_second",
    "refault_bytes_per_second",
    "major_faults_per_second",
    "tokens_per_second",
    "expert_resident_ratio",
    "resident_ratio",
    "headroom_bytes",
)
LONGEST_GAP_SECONDS = 5
"""Looks further apart than this say nothing of the time between them (`decide.window.MAX_GAP_SECONDS`)."""
_STEPS = HISTORY_SECONDS // HISTORY_STEP_SECONDS
_UNKNOWN = math.nan
_NO_STATE = 255
_DECIMALS, _WHOLE_FROM = 3, 1000.0
"""Below a thousand so many decimals are kept, from there on none."""

_State = TypeVar("_State", bound=StrEnum)


class _Series:
    """One backend's arrays, each a ring by step."""

    __slots__ = ("memory", "numbers", "paging", "phase")

    def __init__(self) -> None:
        self.numbers = tuple(array("d", [_UNKNOWN]) * _STEPS for _ in HISTORY_SIGNALS)
        self.phase, self.paging, self.memory = (array("B", [_NO_STATE]) * _STEPS for _ in range(3))

    @property
    def size_bytes(self) -> int:
        states = sum(len(one) * one.itemsize for one in (self.phase, self.paging, self.memory))
        return states + sum(len(one) * one.itemsize for one in self.numbers)

    def set(self, steps: Iterable[int], signals: Mapping[str, float | None], verdict: Verdict | None) -> None:
        values = [_rounded(signals.get(name)) for name in HISTORY_SIGNALS]
        phase, paging, memory = _NO_STATE, _NO_STATE, _NO_STATE
        if verdict is not None:
            phase, paging, memory = _PHASES[verdict.phase], _PAGINGS[verdict.paging], _MEMORIES[verdict.memory]
        for step in steps:
            position = step % _STEPS
            for numbers, value in zip(self.numbers, values, strict=True):
                numbers[position] = value
            self.phase[position], self.paging[position], self.memory[position] = phase, paging, memory


class History:
    """Used by one thread. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._first = 0
        self._last: tuple[int, float] | None = None
        """Step and time of the last look that was kept."""

    @property
    def last_seconds(self) -> float | None:
        """When the last look was that is kept; None before the first."""
        return None if self._last is None else self._last[1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(series.size_bytes for series in self._series.values())

    def record(
        self, at_seconds: float, backends: Mapping[str, tuple[Mapping[str, float | None], Verdict | None]]
    ) -> None:
        """One look at all there are: signals and verdict by backend. Who is not among them any more is forgotten.

        The first look of a step is kept. It stands for the time since the one before, which rates are over, unless that is too long ago.
        """
        step = int(at_seconds // HISTORY_STEP_SECONDS)
        since, near = step, True
        if self._last is None:
            self._first = step
        else:
            since, near = self._last[0] + 1, at_seconds - self._last[1] <= LONGEST_GAP_SECONDS
        if since > step:
            return
        self._last = step, at_seconds
        for name in [name for name in self._series if name not in backends]:
            del self._series[name]
        for name, (signals, verdict) in backends.items():
            series, first = self._series.get(name), since
            if series is None:
                series, first = self._series.setdefault(name, _Series()), step
            elif not near:
                series.set(range(max(since, step - _STEPS + 1), step), {}, None)
                first = step
            series.set(range(first, step + 1), signals, verdict)

    def told(self, seconds: int = HISTORY_SECONDS, backend: str | None = None) -> Histories:
        """The last `seconds` (1 to 600), of all backends or of one; no further back than the first look."""
        if self._last is None:
            return Histories()
        last = self._last[0]
        count = min(max(1, -(-seconds // HISTORY_STEP_SECONDS)), _STEPS, last - self._first + 1)
        start = (last - count + 1) % _STEPS
        wanted = (
            self._series if backend is None else {name: one for name, one in self._series.items() if name == backend}
        )
        return Histories(
            last * HISTORY_STEP_SECONDS,
            HISTORY_STEP_SECONDS,
            tuple(_told(name, series, start, count) for name, series in wanted.items()),
        )


def _told(name: str, series: _Series, start: int, count: int) -> BackendHistory:
    return BackendHistory(
        backend=name,
        signals={
            signal: tuple(None if value != value else value for value in _cut(numbers, start, count))
            for signal, numbers in zip(HISTORY_SIGNALS, series.numbers, strict=True)
        },
        phase=tuple(_states(Phase, series.phase, start, count)),
        paging=tuple(_states(Paging, series.paging, start, count)),
        memory=tuple(_states(MemoryState, series.memory, start, count)),
    )


def _rounded(value: float | None) -> float:
    if value is None:
        return _UNKNOWN
    return round(value, _DECIMALS if -_WHOLE_FROM < value < _WHOLE_FROM else 0)


def _cut(ring: array[float], start: int, count: int) -> array[float]:
    """`count` values from `start` on, over the ring's end."""
    return (ring[start:] + ring[:start])[:count]


def _states(kind: type[_State], ring: array[int], start: int, count: int) -> Iterator[_State | None]:
    states = tuple(kind)
    for code in (ring[start:] + ring[:start])[:count]:
        yield None if code == _NO_STATE else states[code]


def _codes(kind: type[_State]) -> dict[_State, int]:
    return {state: code for code, state in enumerate(kind)}


_PHASES, _PAGINGS, _MEMORIES = _codes(Phase), _codes(Paging), _codes(MemoryState)
