"""What is certain of requests that were cut off, and what is said of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.cutting_off import NONE, UNKNOWN, CutOff, before_end, when_ended, words

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
    ("before", "taken", "expected"),
    [
        ((0, None), 0, (0, None)),
        ((0, None), 2, (None, 2)),
        ((0, None), None, (None, None)),
        ((None, 2), 0, (None, 2)),
        ((None, 2), 3, (None, 5)),
        ((None, 2), None, (None, None)),
        ((2, None), 1, (2, None)),
        ((2, None), None, (2, None)),
        ((None, None), 1, (None, None)),
    ],
)
def test_what_connects_while_it_ends_may_be_cut_off_too(before: Known, taken: int | None, expected: Known) -> None:
    assert when_ended(CutOff(*before), taken) == expected


COUNTS = st.none() | st.integers(0, 3)


@given(COUNTS, COUNTS, COUNTS)
def test_that_none_was_cut_off_is_said_only_where_nobody_was_connected(
    heard: int | None, connections: int | None, taken: int | None
) -> None:
    found = when_ended(before_end(CutOff(heard), connections), taken)
    assert (found == NONE) == (connections == 0 and taken == 0)
    if found.most is not None:
        assert found.most == (connections or 0) + (taken or 0)


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
