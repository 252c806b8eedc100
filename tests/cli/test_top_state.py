from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from status_scenes import absent_and_streaming

from moetuned.cli.top_state import ZOOMS, Sort, TopState, chosen_of, ordered, press

NAMES = ("a", "b", "c")


def after(*keys: str, names: tuple[str, ...] = NAMES) -> TopState:
    state = TopState()
    for key in keys:
        state = press(state, key, names)
    return state


def test_quit() -> None:
    assert after("q").quit
    assert after("Q").quit
    assert after("escape").quit
    assert after("?", "q").quit


def test_escape_goes_back_first() -> None:
    assert after("?", "escape") == TopState()
    state = after("down", "enter", "escape")
    assert (state.only, state.chosen, state.quit) == (False, "b", False)


def test_help_is_closed_by_any_key_which_does_nothing_else() -> None:
    assert after("?").help
    assert after("h").help
    assert after("?", "s") == TopState()


def test_pause_and_sort_and_zoom() -> None:
    assert after("p").paused
    assert not after(" ", "p").paused
    assert [after(*"s" * count).sort for count in range(4)] == [Sort.READS, Sort.HEADROOM, Sort.NAME, Sort.READS]
    assert after("-").seconds_a_column == 4
    assert after("-", "-", "-", "-").seconds_a_column == 10
    assert after("-", "+", "=", "+").seconds_a_column == 2


def test_choose_goes_round_and_one_that_is_gone_is_not_chosen_any_more() -> None:
    assert [after(*["down"] * count).chosen for count in range(1, 5)] == ["b", "c", "a", "b"]
    assert after("up").chosen == "c"
    assert after("tab").chosen == after("j").chosen == "b"
    assert after("down", "enter").only
    assert not after("down", "enter", "enter").only
    assert chosen_of(TopState(chosen="b"), NAMES) == "b"
    assert chosen_of(TopState(chosen="b"), ("a",)) == "a"
    assert chosen_of(TopState(), ()) is None
    assert after("down", "enter", names=()) == TopState()


def test_order_is_by_what_is_known_first() -> None:
    glm, dense = absent_and_streaming().backends
    unknown = msgspec.structs.replace(glm, name="a")
    little = msgspec.structs.replace(dense, name="z", memory=msgspec.structs.replace(dense.memory, headroom_bytes=1))
    little = msgspec.structs.replace(little, signals={"process_read_bytes_per_second": 5.0})
    backends = (glm, little, unknown, dense)
    assert [one.name for one in ordered(backends, Sort.READS)] == ["dense", "z", "a", "glm"]
    assert [one.name for one in ordered(backends, Sort.HEADROOM)] == ["z", "dense", "a", "glm"]
    assert [one.name for one in ordered(backends, Sort.NAME)] == ["a", "dense", "glm", "z"]


KEYS = st.sampled_from([*"qsp?hjk+-=x ", "up", "down", "tab", "enter", "escape", "redraw"])


@given(st.lists(st.tuples(KEYS, st.lists(st.sampled_from("abcd"), unique=True)), max_size=30))
def test_whatever_is_pressed_the_state_is_one_that_can_be_drawn(pressed) -> None:
    state = TopState()
    for key, names in pressed:
        state = press(state, key, names)
        assert state.seconds_a_column in ZOOMS
        assert chosen_of(state, names) in (*names, None)
