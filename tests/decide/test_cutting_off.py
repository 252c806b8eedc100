"""What is certain of requests that were cut off, and what is said of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.cutting_off import NONE, UNKNOWN, CutOff, as_it_ends, before_end, words

Known = tuple[int | None, int | None]


@pytest.mark.parametrize(
    ("heard", "connections", "expected"),
    [
        (0, 0, (0, None)),
        (0, 2, (None, 2)),
        (None, 2, (None, 2)),
        (None, 0, (0, None)),
        (0, None, (None, None)),
        (2, None, (2, None)),
        (None, None, (None, None)),
        (2, 3, (2, None)),
        (2, 2, (2, None)),
        (2, 1, (None, 1)),
        (2, 0, (0, None)),
    ],
)
def test_what_is_connected_in_the_last_moment_goes_before_what_was_heard(
    heard: int | None, connections: int | None, expected: Known
) -> None:
    assert before_end(CutOff(heard), connections) == expected


@pytest.mark.parametrize(
    ("before", "connections", "taken", "expected"),
    [
        ((0, None), 0, 0, (0, None)),
        ((0, None), 0, 5, (None, 5)),
        ((0, None), 0, None, (0, None)),
        ((0, None), 1, 1, (None, 1)),
        ((0, None), None, 0, (0, None)),
        ((0, None), None, 2, (None, 2)),
        ((0, None), None, None, (None, None)),
        ((None, 2), 0, 0, (None, 2)),
        ((None, 2), 1, 0, (None, 2)),
        ((None, 2), 3, 1, (None, 3)),
        ((None, 2), None, 3, (None, 5)),
        ((None, 2), None, None, (None, None)),
        ((2, None), 3, 1, (2, None)),
        ((2, None), None, None, (2, None)),
        ((None, None), 1, 1, (None, None)),
    ],
)
def test_what_connects_while_it_ends_may_be_cut_off_too(
    before: Known, connections: int | None, taken: int | None, expected: Known
) -> None:
    assert as_it_ends(CutOff(*before), connections, taken) == expected


COUNTS = st.none() | st.integers(0, 3)


@given(COUNTS, COUNTS, st.lists(st.tuples(COUNTS, COUNTS)))
def test_that_none_was_cut_off_is_said_only_where_no_look_leaves_room_for_one(
    heard: int | None, connections: int | None, looks: list[tuple[int | None, int | None]]
) -> None:
    found = before_end(CutOff(heard), connections)
    for look in looks:
        found = as_it_ends(found, *look)
    if found == NONE:
        assert connections == 0
        assert all(not there and not taken and (there, taken) != (None, None) for there, taken in looks)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (UNKNOWN, "whether a request was cut off is not known"),
        (NONE, "no request was cut off"),
        (CutOff(1), "1 request was cut off"),
        (CutOff(3), "3 requests were cut off"),
        (CutOff(None, 1), "whether requests were cut off in the last moment is not known: no more than 1 connection was open"),
        (CutOff(None, 3), "whether requests were cut off in the last moment is not known: no more than 3 connections were open"),
    ],
)  # fmt: skip
def test_what_is_said(found: CutOff, said: str) -> None:
    assert words(found) == said
