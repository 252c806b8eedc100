from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.sparkline import ASCII, BLOCKS, bins, sparkline

VALUES = st.lists(st.none() | st.floats(-1e12, 1e12), max_size=80)


def test_height_is_the_value() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 7) == BLOCKS
    assert sparkline([-5, 0, 0.001, 7, 700, None], 7) == "▁▁▂██ "
    assert sparkline([0, 7], 7, unicode=False) == "_#"
    assert sparkline([0, 5], 0) == "▁█"


def test_steps_are_one_character_each() -> None:
    assert len(BLOCKS) == len(ASCII) == len(set(ASCII)) == 8
    assert ASCII.isascii()


def test_a_column_holds_the_same_values_as_long_as_it_is_shown() -> None:
    values = [float(second) for second in range(100, 112)]
    assert bins(values, 111, 5, 3) == [102.0, 107.0, 110.5]
    assert bins(values[:-1], 110, 5, 3) == [102.0, 107.0, 110.0]
    assert bins(values[:-2], 109, 5, 2) == [102.0, 107.0]


def test_unknown_is_no_zero() -> None:
    assert bins([None, None, 4.0, None], 103, 2, 3) == [None, None, 4.0]
    assert bins([], 103, 2, 2) == [None, None]
    assert bins([3.0, 1.0, 2.0], 5, 3, 1, min) == [1.0]


@given(VALUES, st.integers(0, 10_000), st.integers(1, 10), st.integers(0, 60))
def test_as_many_columns_as_were_asked_for(values, last, seconds, columns) -> None:
    found = bins(values, last, seconds, columns)
    assert len(found) == columns
    shown = sparkline(found, 5.0)
    assert len(shown) == columns
    assert set(shown) <= set(BLOCKS + " ")
    known = [value for value in values if value is not None]
    assert all(
        value is None or min(known) - 1 <= value <= max(known) + 1 or math.isclose(value, max(known), rel_tol=1e-6)
        for value in found
    )


@given(VALUES.filter(bool), st.integers(1000, 2000), st.integers(1, 10))
def test_one_second_later_all_but_the_last_columns_have_only_moved(values, last, seconds) -> None:
    now, then = bins(values, last, seconds, 12), bins([*values, 1.0], last + 1, seconds, 12)
    moved = (last + 1) % seconds == 0
    assert then[:-1] == now[1:] if moved else then[:-1] == now[:-1]
