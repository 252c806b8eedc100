from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.top_keys import keys_of, lone_escape


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q?p s+-", ["q", "?", "p", " ", "s", "+", "-"]),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", ["up", "down", "up", "down"]),
        (b"\r\n\t\x0c", ["enter", "enter", "tab", "redraw"]),
        (b"\x1b[5~\x1b[1;5C\x1b[200~\x00\x7f\xff\xc3\xa9", []),
        (b"\x1bOM", ["enter"]),
        (b"\x1b\x1b[Aq", ["escape", "up", "q"]),
    ],
)
def test_keys(typed: bytes, keys: list[str]) -> None:
    assert keys_of(typed) == (keys, b"")


def test_a_sequence_that_comes_in_pieces_is_one_key() -> None:
    keys, rest = keys_of(b"s\x1b")
    assert (keys, rest) == (["s"], b"\x1b")
    keys, rest = keys_of(rest + b"[")
    assert (keys, rest) == ([], b"\x1b[")
    assert keys_of(rest + b"Aq") == (["up", "q"], b"")


def test_escape_alone_is_a_key_once_nothing_follows() -> None:
    assert lone_escape(b"\x1b") == ["escape"]
    assert lone_escape(b"\x1b[") == []
    assert lone_escape(b"") == []


def test_a_sequence_without_an_end_is_not_kept_for_ever() -> None:
    assert keys_of(b"\x1b[" + b"1;" * 40) == ([], b"")


@given(st.binary(max_size=80), st.integers(0, 80))
def test_any_bytes_in_any_pieces_give_the_same_keys(data: bytes, place: int) -> None:
    whole, _ = keys_of(data)
    first, rest = keys_of(data[:place])
    second, left = keys_of(rest + data[place:])
    assert len(left) <= 32
    if len(rest) < 30:
        assert first + second == whole
