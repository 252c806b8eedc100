"""The last ten minutes of each backend in memory: one value a second of what `moetunectl top` draws, in arrays of a fixed size.

A backend costs 35 KiB (600 seconds of seven eight-byte numbers and three states), however long the daemon runs. Numbers are
rounded when they are kept and not each time they are told: who asks again and again must not hold up the loop.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

from moetuned.schema.history import HISTORY_SECONDS, BackendHistory, Histories
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
_UNKNOWN = math.nan
_NO_STATE = 255
_DECIMALS, _WHOLE_FROM = 3, 1000.0
"""Below a thousand so many decimals are kept, from there on none."""

_State = TypeVar("_State", bound=StrEnum)


class _Series:
    """One backend's arrays, each a ring by second."""

    __slots__ = ("memory", "numbers", "paging", "phase")

    def __init__(self) -> None:
        self.numbers = tuple(array("d", [_UNKNOWN]) * HISTORY_SECONDS for _ in HISTORY_SIGNALS)
        self.phase, self.paging, self.memory = (array("B", [_NO_STATE]) * HISTORY_SECONDS for _ in range(3))

    @property
    def size_bytes(self) -> int:
        states = sum(len(one) * one.itemsize for one in (self.phase, self.paging, self.memory))
        return states + sum(len(one) * one.itemsize for one in self.numbers)

    def set(self, seconds: Collection[int], signals: Mapping[str, float | None], verdict: Verdict | None) -> None:
        values = [_rounded(signals.get(name)) for name in HISTORY_SIGNALS]
        phase, paging, memory = _NO_STATE, _NO_STATE, _NO_STATE
        if verdict is not None:
            phase, paging, memory = _PHASES[verdict.phase], _PAGINGS[verdict.paging], _MEMORIES[verdict.memory]
        for second in seconds:
            position = second % HISTORY_SECONDS
            for numbers, value in zip(self.numbers, values, strict=True):
                numbers[position] = value
            self.phase[position], self.paging[position], self.memory[position] = phase, paging, memory


class History:
    """Used by one thread. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._first: int | None = None
        self._last: int | None = None

    @property
    def last_second(self) -> int | None:
        """The second of the last look; None before the first."""
        return self._last

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(series.size_bytes for series in self._series.values())

    def record(
        self, at_seconds: float, backends: Mapping[str, tuple[Mapping[str, float | None], Verdict | None]]
    ) -> None:
        """One look at all there are: signals and verdict by backend. Who is not among them any more is forgotten.

        The value stands for all seconds since the look before, which rates are over, unless that is too long ago. Of two looks in one
        second the later counts; one that is earlier than the last is no look.
        """
        second = math.floor(at_seconds)
        if self._last is not None and second < self._last:
            return
        for name in [name for name in self._series if name not in backends]:
            del self._series[name]
        since = second if self._last is None or second == self._last else self._last + 1
        near = second - since < LONGEST_GAP_SECONDS
        for name, (signals, verdict) in backends.items():
            series = self._series.get(name)
            if series is None:
                series = self._series[name] = _Series()
                series.set((second,), signals, verdict)
                continue
            if not near:
                series.set(range(max(since, second - HISTORY_SECONDS + 1), second), {}, None)
            series.set(range(since, second + 1) if near else (second,), signals, verdict)
        self._first = second if self._first is None else self._first
        self._last = second

    def told(self, seconds: int = HISTORY_SECONDS, backend: str | None = None) -> Histories:
        """The last `seconds` (1 to 600), of all backends or of one; no further back than the first look."""
        if self._last is None or self._first is None:
            return Histories()
        count = min(max(1, seconds), HISTORY_SECONDS, self._last - self._first + 1)
        start = (self._last - count + 1) % HISTORY_SECONDS
        wanted = (
            self._series if backend is None else {name: one for name, one in self._series.items() if name == backend}
        )
        return Histories(self._last, 1, tuple(_told(name, series, start, count) for name, series in wanted.items()))


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
