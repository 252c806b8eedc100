"""Tensor types of ggml: how many elements a block holds and how many bytes it takes.

Checked against `ggml_type_name`, `ggml_blck_size` and `ggml_type_size` of llama.cpp b11549. Numbers are never
reused by ggml, so a table of today reads every older file; a number beyond it is named and never guessed.
"""

from __future__ import annotations

from math import prod

import msgspec


class TensorType(msgspec.Struct, frozen=True, gc=False):
    """A tensor type: `block_elements` elements along the innermost dimension take `block_bytes` bytes."""

    name: str
    block_elements: int
    block_bytes: int


_ROWS: tuple[tuple[int, str, int, int], ...] = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)

TENSOR_TYPES: dict[int, TensorType] = {
    number: TensorType(name, elements, size) for number, name, elements, size in _ROWS
}
"""Every type a GGUF file of today may hold, by its number."""

REMOVED_TYPES: dict[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""Types llama.cpp no longer reads; their layout is not known here either."""


def type_name(number: int) -> str:
    """Name of a type for people, e.g. "Q4_K", "Q4_0_4_4 (removed from llama.cpp)", "unknown type 139"."""
    known = TENSOR_TYPES.get(number)
    if known is not None:
        return known.name
    if number in REMOVED_TYPES:
        return f"{REMOVED_TYPES[number]} (removed from llama.cpp)"
    return f"unknown type {number}"


def row_bytes(tensor_type: TensorType, elements: int) -> int | None:
    """Bytes of `elements` elements along the innermost dimension; None when they are no whole number of blocks."""
    blocks, rest = divmod(elements, tensor_type.block_elements)
    return None if rest else blocks * tensor_type.block_bytes


def tensor_bytes(number: int, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor of type `number`, innermost dimension first.

    None for an unknown type, or when the innermost dimension is no whole number of blocks.
    """
    known = TENSOR_TYPES.get(number)
    if known is None:
        return None
    row = row_bytes(known, shape[0] if shape else 1)
    return None if row is None else row * prod(shape[1:])
