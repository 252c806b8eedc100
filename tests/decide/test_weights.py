from __future__ import annotations

import pytest
from fakes.estimate_facts import small_header
from fakes.gguf_bytes import Q4_0, TensorSpec, gguf_bytes, moe_metadata, moe_tensors
from fakes.model_stub import SHAPES, stub_header

from moetuned.decide.weights import Repacked, repacked_bytes, repacks, weights
from moetuned.gguf.experts import expert_map, layout
from moetuned.gguf.header import Header, parse_header
from moetuned.gguf.tensor_types import tensor_bytes

AVX2 = ("avx2",)


def of(header: Header):
    experts = expert_map((header,), (header.promised_bytes,))
    return weights((header,), experts), layout(experts)


@pytest.mark.parametrize("name", SHAPES)
def test_all_uses_together_are_the_files(name: str):
    sizes, found = of(stub_header(name))
    parts = sizes.expert_bytes + sizes.every_token_bytes + sizes.token_table_bytes + sizes.unused_bytes
    assert parts == found.expert_bytes + found.other_bytes
    assert sizes.expert_bytes == found.expert_bytes
    assert sizes.active_expert_bytes == found.active_expert_bytes
    assert len(sizes.experts_by_layer) == found.layers
    assert sizes.vocabulary == SHAPES[name]["vocabulary"]


def test_a_block_for_next_token_prediction_is_not_read():
    plain, _ = of(small_header())
    mtp, found = of(small_header(nextn_predict_layers=1))
    assert plain.unused_bytes == 0
    assert mtp.expert_bytes == plain.expert_bytes // 2
    assert mtp.unused_bytes == plain.expert_bytes // 2 + plain.dense_by_layer[1]
    header_growth = small_header(nextn_predict_layers=1).data_offset - small_header().data_offset
    assert mtp.every_token_bytes == plain.every_token_bytes - plain.dense_by_layer[1] + header_growth
    assert found.expert_bytes == plain.expert_bytes


def test_a_token_table_without_an_output_matrix_is_read_whole():
    tensors = [spec for spec in moe_tensors() if spec.name != "output.weight"]
    found = parse_header(gguf_bytes(moe_metadata(), tensors))
    assert isinstance(found, Header)
    assert of(found)[0].token_table_bytes == 0


def bytes_of(*specs: TensorSpec) -> int:
    return sum(tensor_bytes(spec.type_code, spec.shape) or 0 for spec in specs)


def test_q4_0_is_repacked_on_avx2_but_not_the_token_table():
    specs = moe_tensors()
    experts = [spec for spec in specs if "_exps" in spec.name]
    other = [
        spec for spec in specs if spec.type_code == Q4_0 and spec not in experts and spec.name != "token_embd.weight"
    ]
    assert repacked_bytes((small_header(),), AVX2) == Repacked(bytes_of(*experts), bytes_of(*other))
    assert repacked_bytes((small_header(),), ()) == Repacked()


@pytest.mark.parametrize(
    ("features", "kind", "copied"),
    [
        (AVX2, 12, True),  # Q4_K
        (AVX2, 39, True),  # MXFP4
        (AVX2, 14, False),  # Q6_K
        (AVX2, 8, False),  # Q8_0
        (AVX2, 10, False),  # Q2_K
        ((*AVX2, "avx512f"), 10, True),
        (("asimd", "asimddp"), 8, True),
        (("asimd", "asimddp"), 14, True),
        (("asimd",), 2, False),
        (("sse2",), 2, False),
    ],
)
def test_which_types_are_repacked(features: tuple[str, ...], kind: int, copied: bool):
    found = parse_header(gguf_bytes(moe_metadata(), [TensorSpec("output.weight", (256, 64), kind)]))
    assert isinstance(found, Header)
    assert (repacked_bytes((found,), features).other_bytes > 0) is copied


def test_rows_that_are_no_eights_stay():
    found = parse_header(gguf_bytes(moe_metadata(), [TensorSpec("output.weight", (256, 63), Q4_0)]))
    assert isinstance(found, Header)
    assert repacked_bytes((found,), AVX2) == Repacked()


def test_names_for_people():
    assert repacks(AVX2) == "Q4_0, Q4_K, IQ4_NL, MXFP4"
    assert repacks(()) == ""
