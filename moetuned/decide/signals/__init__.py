"""Signals: one file each, found by name. A file has a docstring (its manual entry), `UNIT` and `compute(window)`.

A signal that cannot be known is None; nothing fires on None. Rates are over the measured time between samples.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from moetuned.decide.facts import BackendFacts
from moetuned.decide.window import Window, once, window_of
from moetuned.schema.sample import Sample
from moetuned.schema.signals import Signals

Compute = Callable[[Window], float | None]


@cache
def signal_functions() -> dict[str, Compute]:
    """`compute` of every signal by its name (the file's)."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").compute for name in names}


@cache
def signal_units() -> dict[str, str]:
    """`UNIT` of every signal by its name."""
    return {name: importlib.import_module(f"{__name__}.{name}").UNIT for name in signal_functions()}


def derive(window: Sequence[Sample], backend: str, facts: BackendFacts) -> Signals:
    """Signals of `backend` at the last sample of `window` (oldest first; 30 to 60 s of samples are enough).

    Values are None where a counter went back, the process changed, or the sample before is more than 5 s old.
    Raises ValueError for an empty window.
    """
    if not window:
        raise ValueError("no sample to derive signals from")
    return of_window(window_of(window, backend, facts), backend, window[-1].at_seconds)


def of_window(window: Window | None, backend: str, at_seconds: float) -> Signals:
    """The same where the window is there already; None: the backend was not in the sample at `at_seconds`."""
    return complete(on_demand(window, backend, at_seconds))


def on_demand(window: Window | None, backend: str, at_seconds: float) -> Signals:
    """The same, each worked out when it is asked for first: a verdict needs half of them, and nobody may look at the rest."""
    return Signals(
        backend=backend,
        at_seconds=at_seconds,
        dt_seconds=None if window is None else window.dt_seconds,
        values=dict.fromkeys(signal_functions()) if window is None else _OnDemand(window),
    )


def complete(signals: Signals) -> Signals:
    """The same with all values worked out, in a plain dict: to be shown, encoded or kept."""
    return Signals(signals.backend, signals.at_seconds, signals.dt_seconds, dict(signals.values))


class _OnDemand(Mapping[str, float | None]):
    """Values by name. What goes through all of them works all of them out. Holds the window."""

    __slots__ = ("_found", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._found: dict[str, float | None] = {}

    def __getitem__(self, name: str) -> float | None:
        found = self._found
        if name in found:
            return found[name]
        value = found[name] = once(self._window, signal_functions()[name])
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(signal_functions())

    def __len__(self) -> int:
        return len(signal_functions())
