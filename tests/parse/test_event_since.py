from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.event_since import event_since


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("00064a5b1c2d3e-000001", "00064a5b1c2d3e-000001"),
        ("1800000000", 1_800_000_000.0),
        ("1800000000.25", 1_800_000_000.25),
        ("2027-01-15T08:00Z", 1_800_000_000.0),
        ("2027-01-15T09:00:00+01:00", 1_800_000_000.0),
        ("2027-01-15 08:00", 1_800_000_000.0),
        ("2027-01-15", 1_799_971_200.0),
        ("12", "12"),
    ],
)
def test_ids_and_times(text: str, since: str | float) -> None:
    assert event_since(text) == since


@pytest.mark.parametrize("text", ["", "a/b", "2027-13-01", "2027-01-15T25:00Z", "yesterday!", "x" * 65, "0000-01-01"])
def test_neither(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        event_since(text)


@given(st.text(max_size=40))
def test_nothing_else_is_raised(text: str) -> None:
    try:
        assert isinstance(event_since(text), str | float)
    except ValueError:
        pass
