from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.persisted_file import Standing, standing, with_header

BODY = "vm/dirty_ratio = 10\n"


def test_the_header_says_who_wrote_it_and_how_to_take_it_away() -> None:
    first, second, rest = with_header(BODY).split("\n", 2)
    assert "moetuned" in first
    assert "moetunectl tune unpersist" in first
    assert second.startswith("#")
    assert rest == BODY


def test_whose_a_file_is() -> None:
    ours = with_header(BODY)
    assert standing(ours) is Standing.OURS
    assert standing(ours + "\n") is Standing.EDITED
    assert standing(ours.replace("10", "11")) is Standing.EDITED
    assert standing(ours.split("\n")[0] + "\n" + BODY) is Standing.EDITED
    assert standing(ours.split("\n")[0]) is Standing.EDITED
    assert standing(BODY) is Standing.FOREIGN
    assert standing("# mine\n" + ours) is Standing.FOREIGN
    assert standing("") is Standing.FOREIGN


@given(st.text(), st.text())
def test_only_the_same_body_is_ours(body: str, other: str) -> None:
    assert standing(with_header(body)) is Standing.OURS
    if other != body:
        header = with_header(body).removesuffix(body)
        assert standing(header + other) is Standing.EDITED


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    assert standing(text) is Standing.FOREIGN
