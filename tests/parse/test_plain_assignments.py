from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.plain_assignments import parse_assignments


def test_the_last_assignment_wins_and_plus_appends() -> None:
    text = 'A=1\n# B=2\nC="x y" # why\n A = 3\nA=4\nC+="z"\nD+=w\nE=\'q r\'\nF=\n'
    assert parse_assignments(text) == {"A": "4", "C": "x y z", "D": "w", "E": "q r", "F": ""}


def test_what_came_before_is_overlaid_and_not_changed() -> None:
    before = {"A": "1", "B": "2"}
    assert parse_assignments("A=3", before) == {"A": "3", "B": "2"}
    assert before == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    "line", ["A=$(reboot)", 'A="$B"', "A=`id`", "A=b c", "a=1", "A=1;B=2", "export A=1", "A=\\1", "A|=1"]
)
def test_what_a_shell_would_work_out_is_left_out(line: str) -> None:
    assert parse_assignments(line) == {}


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    for name, value in parse_assignments(text).items():
        assert name.isupper()
        assert "\n" not in value
