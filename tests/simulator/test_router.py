import random

from hypothesis import given
from hypothesis import strategies as st

from moetuned.simulator.router import TopicRouter


@given(st.integers(1, 40), st.data())
def test_a_token_gets_exactly_the_experts_it_uses(experts, data):
    used = data.draw(st.integers(1, experts))
    router = TopicRouter(experts, [used, used])
    chooser = random.Random(data.draw(st.integers()))
    before = ()
    for _ in range(5):
        before = router.pick(1, 3, chooser, before)
        assert len(set(before)) == len(before) == used
        assert all(0 <= expert < experts for expert in before)


def touched(router, layer, topics, tokens):
    chooser, seen = random.Random(7), set()
    for topic in topics:
        before = ()
        for _ in range(tokens):
            before = router.pick(layer, topic, chooser, before)
            seen.update(before)
    return seen


def test_a_topic_has_a_working_set_and_all_topics_cover_most():
    router = TopicRouter(64, [4] * 4)
    for layer in range(4):
        one = touched(router, layer, [2], 64)
        assert 10 <= len(one) <= 32
        assert len(touched(router, layer, [2, 5], 64)) > len(one)
        assert len(touched(router, layer, range(8), 64)) >= 50


def test_topics_and_layers_are_not_alike():
    router = TopicRouter(64, [4, 4])
    assert touched(router, 0, [0], 64) != touched(router, 0, [1], 64)
    assert touched(router, 0, [0], 64) != touched(router, 1, [0], 64)


def test_some_experts_are_hot():
    router, chooser, counts = TopicRouter(64, [4]), random.Random(1), [0] * 64
    for _ in range(1000):
        for expert in router.pick(0, 0, chooser):
            counts[expert] += 1
    assert max(counts) > 3 * 4000 / 64


def test_a_restart_routes_alike():
    assert touched(TopicRouter(64, [4]), 0, [6], 32) == touched(TopicRouter(64, [4]), 0, [6], 32)
