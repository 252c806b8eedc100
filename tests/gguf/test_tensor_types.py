from __future__ import annotations

import gguf
import pytest

from moetuned.gguf.tensor_types import REMOVED_TYPES, TENSOR_TYPES, row_bytes, tensor_bytes, type_name

# The gguf package counts Q8_1 as 40 bytes; ggml's block_q8_1 has been 36 since 2024, and no file holds it.
GGUF_PACKAGE_IS_WRONG = {9}


def test_every_type_of_the_gguf_package_is_known_with_its_block():
    for code, (elements, size) in gguf.GGML_QUANT_SIZES.items():
        known = TENSOR_TYPES[int(code)]
        assert known.name == code.name
        if int(code) not in GGUF_PACKAGE_IS_WRONG:
            assert (known.block_elements, known.block_bytes) == (elements, size), code.name


def test_numbers_are_used_once():
    assert not TENSOR_TYPES.keys() & REMOVED_TYPES.keys()


@pytest.mark.parametrize(
    ("number", "name"),
    [(12, "Q4_K"), (42, "Q2_0"), (31, "Q4_0_4_4 (removed from llama.cpp)"), (139, "unknown type 139")],
)
def test_type_name(number: int, name: str):
    assert type_name(number) == name


def test_sizes():
    assert tensor_bytes(12, (512, 3, 2)) == 2 * 144 * 3 * 2
    assert tensor_bytes(0, ()) == 4
    assert tensor_bytes(139, (256,)) is None
    assert tensor_bytes(12, (255,)) is None
    assert row_bytes(TENSOR_TYPES[2], 33) is None
