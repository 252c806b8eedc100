"""Sizes of the demo: what is squeezed must not fit, and a shorter context must give back what the hog took."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from moetuned.demo import plan
from moetuned.demo.__main__ import make_parser
from moetuned.demo.plan import MIB, Sizes
from moetuned.schema.units import parse_bytes
from moetuned.simulator.make_model import make_parser as model_parser
from moetuned.simulator.make_model import shape_from_arguments
from moetuned.simulator.model_shape import data_bytes, kv_bytes_per_token

SIZES = st.builds(Sizes, st.integers(64 * MIB, 1 << 40), st.integers(1, 1 << 20))


def made_sizes() -> Sizes:
    """Of the model that the demo makes when nothing else is asked for."""
    size = make_parser().parse_args([]).size
    shape = shape_from_arguments(model_parser().parse_args(["out", "--size", size, "--heads-kv", str(plan.HEADS_KV)]))
    assert dataclasses.asdict(shape)["heads_kv"] == plan.HEADS_KV
    assert abs(data_bytes(shape) - parse_bytes(size)) < 0.03 * parse_bytes(size)
    return Sizes(data_bytes(shape), kv_bytes_per_token(shape))


@given(SIZES)
def test_the_cgroup_holds_a_part_of_the_model_and_squeezed_less_than_one_topic(sizes: Sizes) -> None:
    cache = sizes.limit_bytes - sizes.kv_bytes - plan.PROCESS_BYTES
    squeezed = sizes.squeezed_bytes - sizes.kv_bytes - plan.PROCESS_BYTES
    assert 0.5 * sizes.model_bytes < cache < 0.7 * sizes.model_bytes
    assert 0 < squeezed < sizes.model_bytes / 3


@given(SIZES, st.integers(0, 1 << 41))
def test_the_hog_leaves_headroom_and_never_takes_less_than_nothing(sizes: Sizes, headroom: int) -> None:
    taken = sizes.hog_bytes(headroom)
    left = headroom - taken
    assert taken >= 0
    assert left >= min(headroom, int(sizes.limit_bytes * plan.HOG_LEAVES_RATIO))
    assert taken == 0 or left == int(sizes.limit_bytes * plan.HOG_LEAVES_RATIO)


def test_the_hog_brings_memory_near_its_limit_and_a_shorter_context_away_from_it() -> None:
    sizes = made_sizes()
    near = 0.08 * sizes.limit_bytes
    left = plan.HOG_LEAVES_RATIO * sizes.limit_bytes
    freed = (plan.PREFERRED_CONTEXT - plan.MINIMUM_CONTEXT) * sizes.kv_bytes_per_token
    assert left < near < left + freed


def test_it_fits_on_a_small_machine() -> None:
    assert made_sizes().limit_bytes < 3 << 30
