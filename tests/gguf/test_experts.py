from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from fakes.gguf_bytes import F32, Q4_0, TensorSpec, gguf_bytes, moe_metadata, moe_tensors
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.gguf.experts import (
    ExpertMap,
    Role,
    embedding_ranges,
    expert_map,
    expert_ranges,
    expert_slices,
    layout,
    other_ranges,
    role,
)
from moetuned.gguf.header import GgufError, Header, parse_header
from moetuned.schema.model import ByteRange

SLICE = 64 * 32 // 32 * 18


def mapped(*files: tuple[dict[str, Any], Sequence[TensorSpec]], trailing: int = 0) -> ExpertMap:
    headers, sizes = [], []
    for metadata, tensors in files:
        raw = gguf_bytes(metadata, tensors)
        header = parse_header(raw, len(raw))
        assert isinstance(header, Header)
        headers.append(header)
        sizes.append(len(raw) + trailing)
    return expert_map(headers, sizes)


def refused(metadata: dict[str, Any], tensors: Sequence[TensorSpec]) -> str:
    with pytest.raises(GgufError) as caught:
        mapped((metadata, tensors))
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("blk.0.ffn_gate_exps.weight", Role.ROUTED_EXPERT),
        ("blk.12.ffn_down_exps.bias", Role.ROUTED_EXPERT),
        ("blk.12.ffn_up_exps.scale", Role.ROUTED_EXPERT),
        ("blk.3.ffn_gate_up_exps.weight", Role.ROUTED_EXPERT),
        ("blk.3.ffn_up_chexps.weight", Role.ROUTED_EXPERT),
        ("blk.3.ffn_down.7.weight", Role.ROUTED_EXPERT),
        ("blk.3.ffn_norm_exps.weight", Role.DENSE),
        ("blk.3.ffn_down.weight", Role.DENSE),
        ("blk.3.ffn_gate_shexp.weight", Role.SHARED_EXPERT),
        ("blk.3.ffn_gate_inp_shexp.weight", Role.SHARED_EXPERT),
        ("blk.3.ffn_gate_inp.weight", Role.ROUTER),
        ("blk.3.exp_probs_b.bias", Role.ROUTER),
        ("token_embd.weight", Role.EMBEDDING),
        ("output.weight", Role.DENSE),
        ("blk.3.attn_q.weight", Role.DENSE),
    ],
)
def test_role(name: str, expected: Role):
    assert role(name) is expected


def test_layout_of_a_plain_model():
    experts = mapped((moe_metadata(), moe_tensors()), trailing=100)
    sizes = layout(experts)
    assert (sizes.layers, sizes.experts, sizes.experts_used) == (2, 4, 2)
    assert sizes.expert_slice_bytes == SLICE
    assert sizes.expert_bytes == 2 * 3 * 4 * SLICE
    assert sizes.expert_bytes + sizes.other_bytes == sum(experts.part_bytes)
    assert sizes.active_expert_bytes == 2 * 2 * 3 * SLICE


def test_slices_are_the_outermost_dimension():
    experts = mapped((moe_metadata(), moe_tensors()))
    by_name = {tensor.name: tensor for tensor in experts.tensors}
    assert expert_slices(experts, 1, 3) == tuple(
        ByteRange(0, by_name[f"blk.1.ffn_{kind}_exps.weight"].offset + 3 * SLICE, SLICE)
        for kind in ("gate", "up", "down")
    )
    assert expert_slices(experts, 1, 4) == ()
    assert expert_slices(experts, 2, 0) == ()
    assert expert_slices(experts, 0, -1) == ()


def test_the_slices_of_all_experts_are_all_expert_bytes():
    experts = mapped((moe_metadata(), moe_tensors()))
    slices = sorted(
        (one.offset, one.length)
        for layer in range(2)
        for expert in range(4)
        for one in expert_slices(experts, layer, expert)
    )
    assert sum(length for _, length in slices) == layout(experts).expert_bytes
    assert all(a + n <= b for (a, n), (b, _) in pairwise(slices))


def covered(experts: ExpertMap) -> None:
    """Experts and the rest together are every byte of every file, once."""
    for part, size in enumerate(experts.part_bytes):
        position = 0
        ranges = [one for one in (*expert_ranges(experts), *other_ranges(experts)) if one.part == part]
        for one in sorted(ranges, key=lambda one: one.offset):
            assert one.offset == position
            assert one.length > 0
            position += one.length
        assert position == size


def test_embeddings_can_be_left_out_of_the_rest():
    experts = mapped((moe_metadata(), moe_tensors()))
    (table,) = embedding_ranges(experts)
    assert table.length == 64 * 96 // 32 * 18
    without = other_ranges(experts, embeddings=False)
    assert sum(one.length for one in without) == layout(experts).other_bytes - table.length
    assert all(one.offset + one.length <= table.offset or one.offset >= table.offset + table.length for one in without)


def test_a_tied_token_table_is_read_whole():
    experts = mapped((moe_metadata(), [spec for spec in moe_tensors() if spec.name != "output.weight"]))
    assert embedding_ranges(experts) == ()
    assert other_ranges(experts, embeddings=False) == other_ranges(experts)


def test_split_over_files():
    tensors = moe_tensors()
    experts = mapped((moe_metadata(), tensors[:5]), ({}, tensors[5:]))
    covered(experts)
    assert {tensor.part for tensor in experts.tensors} == {0, 1}
    assert [one.part for one in expert_slices(experts, 0, 1)] == [0, 1, 1]
    assert layout(experts).active_expert_bytes == 2 * 2 * 3 * SLICE


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(1, 9), st.permutations(range(12)), st.integers(0, 40))
def test_every_byte_is_counted_once(layers: int, experts: int, order: list[int], trailing: int):
    tensors = moe_tensors(layers, experts)
    shuffled = [tensors[index] for index in order if index < len(tensors)] + tensors[12:]
    missing = [spec for spec in tensors if spec not in shuffled]
    found = mapped((moe_metadata(layers, experts, 1), shuffled + missing), trailing=trailing)
    covered(found)
    assert sum(one.length for one in expert_ranges(found)) == layout(found).expert_bytes


def test_a_dense_model_has_no_experts():
    metadata = {"general.architecture": "llama", "llama.block_count": 2}
    experts = mapped(
        (metadata, [TensorSpec("token_embd.weight", (64, 96)), TensorSpec("blk.0.ffn_up.weight", (64, 32))])
    )
    sizes = layout(experts)
    assert (sizes.layers, sizes.experts, sizes.expert_bytes, sizes.active_expert_bytes) == (2, 0, 0, 0)
    assert expert_ranges(experts) == ()
    covered(experts)


def test_a_vision_projector_is_dense_too():
    assert (
        layout(mapped(({"general.architecture": "clip"}, [TensorSpec("v.blk.0.ffn_up.weight", (32, 4))]))).layers == 0
    )


def test_next_token_prediction_blocks_are_experts_but_not_active():
    metadata = moe_metadata(layers=3, nextn_predict_layers=1)
    sizes = layout(mapped((metadata, moe_tensors(layers=3))))
    assert sizes.layers == 2
    assert sizes.expert_bytes == 3 * 3 * 4 * SLICE
    assert sizes.active_expert_bytes == 2 * 2 * 3 * SLICE


def test_dense_leading_layers_are_not_active():
    tensors = [spec for spec in moe_tensors() if not spec.name.startswith("blk.0.ffn")]
    assert layout(mapped((moe_metadata(), tensors))).active_expert_bytes == 2 * 3 * SLICE


def test_experts_used_may_differ_by_layer():
    sizes = layout(mapped((moe_metadata() | {"qwen3moe.expert_used_count": [1, 3]}, moe_tensors())))
    assert sizes.experts_used == 3
    assert sizes.active_expert_bytes == (1 + 3) * 3 * SLICE


def test_biases_and_scales_belong_to_their_expert():
    tensors = [
        *moe_tensors(1),
        TensorSpec("blk.0.ffn_up_exps.bias", (32, 4)),
        TensorSpec("blk.0.ffn_up_exps.scale", (4,)),
    ]
    experts = mapped((moe_metadata(1), tensors))
    assert [one.length for one in expert_slices(experts, 0, 2)] == [SLICE, SLICE, SLICE, 128, 4]
    assert layout(experts).expert_slice_bytes == SLICE


def test_fused_gate_and_up():
    tensors = [
        TensorSpec("blk.0.ffn_gate_up_exps.weight", (64, 64, 4), Q4_0),
        TensorSpec("blk.0.ffn_down_exps.weight", (32, 64, 4), Q4_0),
    ]
    assert layout(mapped((moe_metadata(1), tensors))).active_expert_bytes == 2 * 3 * SLICE


def test_chunk_experts_are_shared_by_neighbours():
    tensors = [*moe_tensors(1), TensorSpec("blk.0.ffn_up_chexps.weight", (64, 32, 2), F32)]
    experts = mapped((moe_metadata(1), tensors))
    chunks = [expert_slices(experts, 0, expert)[-1] for expert in range(4)]
    assert chunks[0] == chunks[1] != chunks[2] == chunks[3]


def test_old_mixtral_files_have_a_tensor_an_expert():
    tensors = [
        TensorSpec(f"blk.{layer}.ffn_{kind}.{expert}.weight", (64, 32), Q4_0)
        for layer in range(2)
        for kind in ("gate", "down", "up")
        for expert in range(4)
    ]
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.expert_count": 4,
        "llama.expert_used_count": 2,
    }
    experts = mapped((metadata, tensors))
    assert layout(experts).active_expert_bytes == 2 * 2 * 3 * SLICE
    assert layout(experts).experts == 4
    assert [one.length for one in expert_slices(experts, 1, 3)] == [SLICE] * 3
    covered(experts)


def test_contradictions_are_said_and_not_guessed():
    metadata, tensors = moe_metadata(), moe_tensors()
    del metadata["qwen3moe.expert_used_count"]
    assert "no qwen3moe.expert_used_count" in refused(metadata, tensors)
    assert "expert_count is 8, but its expert tensors hold 4" in refused(moe_metadata(experts=8), tensors)
    assert "more than the 4 experts" in refused(moe_metadata(used=5), tensors)
    assert "block_count" in refused({"general.architecture": "qwen3moe", "qwen3moe.expert_count": 4}, tensors)
    assert "general.architecture" in refused({}, tensors)
    assert "holds 1 values for 2 layers" in refused(moe_metadata() | {"qwen3moe.expert_used_count": [2]}, tensors)
    odd = [TensorSpec("blk.9999.ffn_up_exps.weight", (64, 32, 4), Q4_0)]
    assert "no layer below" in refused(moe_metadata(), odd)
    assert "cannot be cut" in refused(moe_metadata(), [TensorSpec("blk.0.ffn_up_exps.weight", (64, 32, 0))])
    assert "impossible number" in refused(moe_metadata(), [TensorSpec("blk.0.ffn_up.4444444.weight", (64,))])


def test_an_unknown_tensor_type_is_named():
    assert "unknown type 139" in refused(moe_metadata(), [*moe_tensors(), TensorSpec("blk.1.x.weight", (32,), 139)])
