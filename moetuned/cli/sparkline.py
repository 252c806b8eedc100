"""Sparklines: a row of characters whose height is a value; nothing where the value is unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.:-=+*#"

Values = Sequence[float | None]


def mean(values: Sequence[float]) -> float:
    """Their average."""
    return sum(values) / len(values)


def bins(
    values: Values, last: int, a_column: int, columns: int, gather: Callable[[Sequence[float]], float] = mean
) -> list[float | None]:
    """`values` as `columns` columns of `a_column` values each, oldest first, unknown where there is nothing.

    `last`: the number of the last value. A column holds the same values as long as it is shown, so that a picture only moves and does
    not flicker.
    """
    found: list[float | None] = []
    end = len(values)
    length = last % a_column + 1
    while len(found) < columns and end > 0:
        known = [value for value in values[max(0, end - length) : end] if value is not None]
        found.append(gather(known) if known else None)
        end -= length
        length = a_column
    found.extend([None] * (columns - len(found)))
    return found[::-1]


def sparkline(values: Values, top: float, *, unicode: bool = True) -> str:
    """One character a value: lowest at 0 and below, highest at `top` and above, a space for unknown."""
    steps = BLOCKS if unicode else ASCII
    if top <= 0:
        top = 1.0
    return "".join(" " if value is None else steps[_step(value / top, len(steps))] for value in values)


def _step(share: float, steps: int) -> int:
    """The lowest is for nothing at all, so that a little is seen."""
    return 0 if share <= 0 else max(1, min(steps - 1, round(min(1.0, share) * (steps - 1))))
