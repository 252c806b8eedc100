"""What the keys of `moetunectl top` do: what is shown, in which order, over how long. A key goes into `press` and the next state comes out."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from moetuned.schema.snapshot import BackendView

ZOOMS = (2, 4, 10)
"""Seconds that a column of a sparkline may stand for: steps of the history."""


class Sort(StrEnum):
    """Which backend is first: the one that reads most, the one with the least headroom, or by name."""

    READS = "reads"
    HEADROOM = "headroom"
    NAME = "name"


class TopState(msgspec.Struct, frozen=True):
    """What a person chose. `chosen`: name of the backend that is shown whole, None: the first; `only`: no other is shown."""

    sort: Sort = Sort.READS
    chosen: str | None = None
    only: bool = False
    paused: bool = False
    help: bool = False
    seconds_a_column: int = ZOOMS[0]
    quit: bool = False


def press(state: TopState, key: str, names: Sequence[str]) -> TopState:
    """The state after a key; `names` are the backends in the order in which they are shown. Other keys do nothing."""
    if key in ("q", "Q") or (key == "escape" and not (state.help or state.only)):
        return msgspec.structs.replace(state, quit=True)
    if state.help:  # any key closes it
        return msgspec.structs.replace(state, help=False)
    match key:
        case "?" | "h":
            return msgspec.structs.replace(state, help=True)
        case "escape":
            return msgspec.structs.replace(state, only=False)
        case "p" | " ":
            return msgspec.structs.replace(state, paused=not state.paused)
        case "s":
            sorts = tuple(Sort)
            return msgspec.structs.replace(state, sort=sorts[(sorts.index(state.sort) + 1) % len(sorts)])
        case "+" | "=" | "-":
            place = ZOOMS.index(state.seconds_a_column) + (1 if key == "-" else -1)
            return msgspec.structs.replace(state, seconds_a_column=ZOOMS[max(0, min(len(ZOOMS) - 1, place))])
        case "down" | "j" | "tab":
            return _choose(state, names, 1)
        case "up" | "k":
            return _choose(state, names, -1)
        case "enter":
            chosen = chosen_of(state, names)
            return msgspec.structs.replace(state, chosen=chosen, only=not state.only and chosen is not None)
    return state


def chosen_of(state: TopState, names: Sequence[str]) -> str | None:
    """The chosen backend, the first where that one is gone or none was chosen; None: there is none."""
    return state.chosen if state.chosen in names else (names[0] if names else None)


def ordered(backends: Sequence[BackendView], sort: Sort) -> list[BackendView]:
    """Those backends in the order of `sort`; what is unknown comes last."""
    by_name = sorted(backends, key=lambda one: one.name)
    match sort:
        case Sort.READS:
            return sorted(by_name, key=lambda one: _last(one.signals.get("process_read_bytes_per_second"), -1.0))
        case Sort.HEADROOM:
            return sorted(by_name, key=lambda one: _last(one.memory.headroom_bytes, 1.0))
        case Sort.NAME:
            return by_name


def _last(value: float | None, sign: float) -> tuple[bool, float]:
    return value is None, 0.0 if value is None else sign * value


def _choose(state: TopState, names: Sequence[str], step: int) -> TopState:
    now = chosen_of(state, names)
    if now is None:
        return state
    return msgspec.structs.replace(state, chosen=names[(names.index(now) + step) % len(names)])
