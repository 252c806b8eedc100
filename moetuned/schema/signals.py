"""Signals: what two samples say together, one value a name; None is unknown and fires nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Signals(msgspec.Struct, frozen=True):
    """Signals of one backend at one tick. `values` maps a signal's name (a file in `decide/signals/`) to its value.

    `dt_seconds` is the measured time since the previous sample, None when there is none or it was too long ago.
    """

    backend: str
    at_seconds: float
    dt_seconds: float | None
    values: Mapping[str, float | None]

    def get(self, name: str) -> float | None:
        """Value of the signal `name`; None when unknown. KeyError for a name that is no signal."""
        return self.values[name]
