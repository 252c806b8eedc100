from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.simulator.model_shape import (
    ModelShape,
    ShapeError,
    check_shape,
    data_bytes,
    default_dimensions,
    expert_slice_bytes,
    kv_bytes_per_token,
    shape_for_size,
    tensors,
)

MIB = 1 << 20
SHAPE = ModelShape(layers=2, experts=8)


@given(st.integers(64 * MIB, 64 << 30))
def test_every_ordinary_size_is_met_within_three_percent(size):
    embedding, forward = default_dimensions(size)
    template = ModelShape(layers=1, experts=4, embedding=embedding, feed_forward=forward)
    shape = shape_for_size(size, template, layers=None, experts=None)
    check_shape(shape)
    assert abs(data_bytes(shape) - size) <= 0.03 * size


def test_the_default_sizes_have_slices_of_a_few_hundred_kib_and_several_layers():
    shape = shape_for_size(1536 * MIB, SHAPE, layers=None, experts=None)
    assert expert_slice_bytes(shape) == 432 << 10
    assert shape.layers >= 8
    assert shape.experts >= 32


@pytest.mark.parametrize(("layers", "experts"), [(10, None), (None, 64)])
def test_a_given_count_is_kept(layers, experts):
    shape = shape_for_size(1 << 30, SHAPE, layers=layers, experts=experts)
    assert (layers or shape.layers, experts or shape.experts) == (shape.layers, shape.experts)
    assert abs(data_bytes(shape) - (1 << 30)) <= 0.03 * (1 << 30)


def test_a_size_that_cannot_be_met_is_refused():
    with pytest.raises(ShapeError, match="--size"):
        shape_for_size(3 * MIB, SHAPE, layers=None, experts=None)


def test_kv_cost_is_keys_and_values_of_every_layer_in_two_bytes():
    assert kv_bytes_per_token(SHAPE) == 2 * 4 * (64 + 64) * 2


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"embedding": 1000}, "embedding"),
        ({"feed_forward": 0}, "feed_forward"),
        ({"key_length": 33}, "key_length"),
        ({"experts_used": 9}, "experts used"),
        ({"heads_kv": 3}, "heads-kv"),
        ({"heads_kv": 0}, "heads_kv"),
        ({"layers": 513}, "512"),
        ({"context_length": 0}, "context_length"),
    ],
)
def test_what_llama_cpp_would_not_load_is_refused_by_name(change, word):
    with pytest.raises(ShapeError, match=word):
        check_shape(replace(SHAPE, **change))


def test_experts_are_the_outermost_dimension():
    for tensor in tensors(SHAPE):
        if "_exps" in tensor.name:
            assert tensor.dimensions[-1] == SHAPE.experts
            assert tensor.size_bytes == SHAPE.experts * expert_slice_bytes(SHAPE)
