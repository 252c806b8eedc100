"""GGUF files made by hand, also ones that no honest writer makes: either byte order, old versions, wrong counts."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from moetuned.gguf.tensor_types import tensor_bytes

CODES = {"u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7, "u64": 10, "i64": 11, "f64": 12}
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
F32, Q4_0 = 0, 2


class Typed(NamedTuple):
    """A value with its GGUF type, e.g. Typed("u64", 7) or Typed("f32", [1.0])."""

    kind: str
    value: Any


class TensorSpec(NamedTuple):
    """A tensor to be written; `offset` None: behind the one before, as an honest writer places it."""

    name: str
    shape: tuple[int, ...]
    type_code: int = F32
    offset: int | None = None


def text(value: str | bytes, order: str = "<") -> bytes:
    """A GGUF string."""
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack(order + "Q", len(raw)) + raw


def value_bytes(value: Any, order: str = "<") -> bytes:
    """Type and value of a metadata entry; plain ints are u32, floats f32, lists of strings and of i32 arrays."""
    if isinstance(value, str | bytes):
        return struct.pack(order + "I", 8) + text(value, order)
    if isinstance(value, bool):
        value = Typed("bool", value)
    elif isinstance(value, int):
        value = Typed("u32", value)
    elif isinstance(value, float):
        value = Typed("f32", value)
    elif isinstance(value, list) and value and isinstance(value[0], str | bytes):
        body = b"".join(text(one, order) for one in value)
        return struct.pack(order + "IIQ", 9, 8, len(value)) + body
    elif isinstance(value, list):
        value = Typed("bool" if value and isinstance(value[0], bool) else "i32", value)
    code = CODES[value.kind]
    if isinstance(value.value, list):
        body = struct.pack(f"{order}{len(value.value)}{FORMATS[code]}", *value.value)
        return struct.pack(order + "IIQ", 9, code, len(value.value)) + body
    return struct.pack(order + "I" + FORMATS[code], code, value.value)


def gguf_bytes(
    metadata: dict[str, Any] | Iterable[tuple[str | bytes, Any]],
    tensors: Sequence[TensorSpec] = (),
    *,
    order: str = "<",
    version: int = 3,
    with_data: bool = True,
    tensor_count: int | None = None,
    key_count: int | None = None,
) -> bytes:
    """A whole GGUF file (or only its header); counts can be made to lie."""
    entries = list(metadata.items() if isinstance(metadata, dict) else metadata)
    alignment = next(
        (value for key, value in entries if key == "general.alignment" and isinstance(value, int) and value), 32
    )
    out = [
        b"GGUF",
        struct.pack(
            order + "IQQ",
            version,
            len(tensors) if tensor_count is None else tensor_count,
            len(entries) if key_count is None else key_count,
        ),
    ]
    out += [text(key, order) + value_bytes(value, order) for key, value in entries]
    position = 0
    for spec in tensors:
        offset = position if spec.offset is None else spec.offset
        size = tensor_bytes(spec.type_code, spec.shape) or 0
        position = -(-(offset + size) // alignment) * alignment
        out.append(text(spec.name, order) + struct.pack(order + "I", len(spec.shape)))
        out.append(struct.pack(f"{order}{len(spec.shape)}Q", *spec.shape))
        out.append(struct.pack(order + "IQ", spec.type_code, offset))
    head = b"".join(out)
    if not with_data:
        return head
    return head + bytes(-len(head) % alignment) + bytes(position)


def moe_metadata(layers: int = 2, experts: int = 4, used: int = 2, **more: Any) -> dict[str, Any]:
    """Metadata of a small qwen3moe; `more` adds keys under `qwen3moe.` with dots written as double underscores."""
    metadata: dict[str, Any] = {
        "general.architecture": "qwen3moe",
        "qwen3moe.block_count": layers,
        "qwen3moe.embedding_length": 64,
        "qwen3moe.attention.head_count": 4,
        "qwen3moe.attention.head_count_kv": 2,
        "qwen3moe.expert_count": experts,
        "qwen3moe.expert_used_count": used,
    }
    metadata.update({"qwen3moe." + key.replace("__", "."): value for key, value in more.items()})
    return metadata


def moe_tensors(layers: int = 2, experts: int = 4) -> list[TensorSpec]:
    """Tensors of the same model, in the order llama.cpp's converter writes them."""
    specs = [TensorSpec("token_embd.weight", (64, 96), Q4_0), TensorSpec("output.weight", (64, 96), Q4_0)]
    for layer in range(layers):
        block = f"blk.{layer}."
        specs += [
            TensorSpec(block + "attn_q.weight", (64, 64), Q4_0),
            TensorSpec(block + "ffn_gate_inp.weight", (64, experts)),
            TensorSpec(block + "ffn_gate_exps.weight", (64, 32, experts), Q4_0),
            TensorSpec(block + "ffn_up_exps.weight", (64, 32, experts), Q4_0),
            TensorSpec(block + "ffn_down_exps.weight", (32, 64, experts), Q4_0),
        ]
    return specs


def write_parts(directory: Path, prefix: str = "m", parts: int = 3, **more: Any) -> list[Path]:
    """A small MoE model in `parts` files."""
    tensors = moe_tensors(2)
    cuts = [len(tensors) * index // parts for index in range(parts + 1)]
    paths = []
    for index in range(parts):
        metadata = {
            "split.no": Typed("u16", index),
            "split.count": Typed("u16", parts),
            "split.tensors.count": Typed("i32", len(tensors)),
        } | (moe_metadata(**more) if index == 0 else {})
        path = directory / f"{prefix}-{index + 1:05}-of-{parts:05}.gguf"
        path.write_bytes(gguf_bytes(metadata, tensors[cuts[index] : cuts[index + 1]]))
        paths.append(path)
    return paths
