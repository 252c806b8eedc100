"""What a backend does with each tensor's bytes: read for every token, cached as an expert, read by the row, or not at all.

Also which tensors llama.cpp copies when it repacks weights for the CPU, which it does unless told not to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from moetuned.gguf.experts import ExpertMap, Role, layout, role
from moetuned.gguf.header import Header, Tensor
from moetuned.gguf.tensor_types import TENSOR_TYPES

_MATRIX_DIMENSIONS = 2
_EXPERT_DIMENSIONS = 3


class Weights(msgspec.Struct, frozen=True):
    """Bytes of a model by use; together they are the size of its files.

    `experts_by_layer` are the routed experts of each block that tokens pass, `every_token_bytes` all that each token
    reads, `dense_by_layer` the part of it that belongs to a block, `token_table_bytes` tables of which only the rows of
    used tokens are read, `unused_bytes` the blocks for next-token prediction, read only when speculation is on.
    `vocabulary` and `embedding` are elements.
    """

    experts_by_layer: tuple[int, ...]
    dense_by_layer: tuple[int, ...]
    every_token_bytes: int
    token_table_bytes: int
    unused_bytes: int
    active_expert_bytes: int
    slice_bytes: int
    vocabulary: int
    embedding: int

    @property
    def expert_bytes(self) -> int:
        """All routed experts that tokens can be sent to."""
        return sum(self.experts_by_layer)


def weights(headers: Sequence[Header], experts: ExpertMap) -> Weights:
    """Sort the bytes of a model whose tensors are all of known types (`experts.expert_map` has seen to that)."""
    layers = experts.layers
    routed, dense = [0] * layers, [0] * layers
    unused = 0
    table_bytes = sum(one.length for one in experts.token_tables)
    vocabulary = embedding = 0
    for header in headers:
        for tensor in header.tensors:
            size = tensor.size_bytes or 0
            layer = _block(tensor.name)
            if tensor.name == "token_embd.weight" and len(tensor.shape) == _MATRIX_DIMENSIONS:
                embedding, vocabulary = tensor.shape
            if layer is None:
                continue
            if layer >= layers > 0:
                unused += size
            elif layer < layers:
                (routed if role(tensor.name) is Role.ROUTED_EXPERT else dense)[layer] += size
    found = layout(experts)
    every_token = sum(experts.part_bytes) - sum(routed) - unused - table_bytes
    return Weights(
        experts_by_layer=tuple(routed),
        dense_by_layer=tuple(dense),
        every_token_bytes=every_token,
        token_table_bytes=table_bytes,
        unused_bytes=unused,
        active_expert_bytes=found.active_expert_bytes,
        slice_bytes=found.expert_slice_bytes,
        vocabulary=vocabulary,
        embedding=embedding,
    )


def _block(name: str) -> int | None:
    head, _, rest = name.partition("blk.")
    number = rest.partition(".")[0]
    return int(number) if not head and 0 < len(number) <= 6 and number.isascii() and number.isdigit() else None


class Repacked(msgspec.Struct, frozen=True):
    """Bytes that are copied: of routed experts, and of everything else."""

    expert_bytes: int = 0
    other_bytes: int = 0


def repacked_bytes(headers: Sequence[Header], cpu_features: Collection[str]) -> Repacked:
    """Bytes of weights that llama.cpp copies into anonymous memory on a CPU with these /proc/cpuinfo flags.

    The rule is `ggml_repack_get_optimal_repack_type` of b11434 for x86 and ARM: matrices and stacks of experts whose rows
    come in eights (fours). The token table is read by the row and stays, unless it serves as the output matrix too.
    """
    tensors = [tensor for header in headers for tensor in header.tensors]
    has_output = any(tensor.name == "output.weight" for tensor in tensors)
    copied = [tensor for tensor in tensors if _is_repacked(tensor, cpu_features, has_output)]
    experts = sum(tensor.size_bytes or 0 for tensor in copied if role(tensor.name) is Role.ROUTED_EXPERT)
    return Repacked(experts, sum(tensor.size_bytes or 0 for tensor in copied) - experts)


def repacks(cpu_features: Collection[str]) -> str:
    """Names of the types that this CPU repacks, for people; "" when none."""
    return ", ".join(_repack_types(cpu_features))


def _is_repacked(tensor: Tensor, cpu_features: Collection[str], has_output: bool) -> bool:
    rows = _repack_types(cpu_features).get(TENSOR_TYPES[tensor.type_code].name) if _known(tensor) else None
    if rows is None or len(tensor.shape) < _MATRIX_DIMENSIONS or tensor.shape[1] % rows:
        return False
    what = role(tensor.name)
    if what is Role.EMBEDDING:
        return tensor.name == "token_embd.weight" and not has_output
    if tensor.name.endswith(".bias"):
        return False
    return len(tensor.shape) == (_EXPERT_DIMENSIONS if what is Role.ROUTED_EXPERT else _MATRIX_DIMENSIONS)


def _known(tensor: Tensor) -> bool:
    return tensor.type_code in TENSOR_TYPES and tensor.size_bytes is not None


def _repack_types(cpu_features: Collection[str]) -> dict[str, int]:
    """Rows that must divide a tensor's, by type name."""
    types: dict[str, int] = {}
    if "avx2" in cpu_features:
        types |= {"Q4_0": 8, "Q4_K": 8, "IQ4_NL": 8, "MXFP4": 8}
    if "avx512f" in cpu_features:
        types |= {"Q2_K": 8}
    if "asimd" in cpu_features and ("asimddp" in cpu_features or "i8mm" in cpu_features):
        types |= {"Q4_0": 4, "Q4_K": 8, "Q5_K": 8, "Q6_K": 8, "Q8_0": 4, "Q1_0": 4}
    if "asimddp" in cpu_features:
        types |= {"IQ4_NL": 4, "MXFP4": 4}
    return types
