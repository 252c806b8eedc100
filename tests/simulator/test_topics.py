import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.simulator.topics import TOPICS, prompt_for_topic, topic_of_byte, topic_of_text


@given(st.integers(0, 255))
def test_every_byte_has_a_topic(value):
    assert 0 <= topic_of_byte(value) < TOPICS


@given(st.integers(0, TOPICS - 1), st.integers(1, 80), st.integers())
def test_a_prompt_made_for_a_topic_has_that_topic_and_can_be_typed(topic, characters, seed):
    prompt = prompt_for_topic(topic, characters, seed)
    assert len(prompt) == characters
    assert prompt.isascii()
    assert prompt.isprintable()
    assert {topic_of_byte(value) for value in prompt.encode()} == {topic}


def test_the_majority_decides_and_an_empty_text_is_topic_0():
    assert topic_of_text(b"!!!~~") == topic_of_byte(ord("!"))
    assert topic_of_text(b"!!~~~") == topic_of_byte(ord("~"))
    assert topic_of_text(b"") == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_prompts_differ_by_seed_and_repeat_for_the_same(seed):
    assert prompt_for_topic(3, 40, seed) == prompt_for_topic(3, 40, seed)
    assert prompt_for_topic(3, 40, seed) != prompt_for_topic(3, 40, seed + 1)
