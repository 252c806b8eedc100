from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.io_limits import ReadLimit, parse_io_max, parse_throttle


def test_version_2() -> None:
    text = (
        "8:0 rbps=1048576 wbps=max riops=max wiops=max\n8:16 rbps=max wbps=1 riops=120 wiops=max\n9:0 rbps=max wbps=5\n"
    )
    assert parse_io_max(text) == {"8:0": ReadLimit(1048576), "8:16": ReadLimit(None, 120)}


def test_version_1() -> None:
    assert parse_throttle("8:0 1048576\n", "8:0 50\n8:16 7\nrubbish\n") == {
        "8:0": ReadLimit(1048576, 50),
        "8:16": ReadLimit(None, 7),
    }


@given(st.text(), st.text())
def test_hostile_text(one: str, other: str) -> None:
    assert all(parse_io_max(one).values())
    assert all(parse_throttle(one, other).values())
