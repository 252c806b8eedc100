"""The shape of a made model: its dimensions, its tensors in file order, its exact size, and a shape for a wanted size.

The architecture is qwen3moe, one of the plainest Mixture-of-Experts graphs llama.cpp knows: grouped-query attention with
normed queries and keys, a softmax router, `experts_used` of `experts` SwiGLU experts a layer, no shared expert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

ALIGNMENT = 32
BLOCK_ELEMENTS = 32
BLOCK_BYTES = 18
VOCABULARY = 288
ROW_BYTES_F32 = 4

# Below this size the dimensions shrink, or the file would have no room for a few layers of a few experts.
_SMALL_BYTES = 64 << 20


class ShapeError(ValueError):
    """The dimensions do not make a model that llama.cpp loads; the message says which and why."""


@dataclass(frozen=True)
class ModelShape:
    """Dimensions of a model, in elements unless said otherwise."""

    layers: int
    experts: int
    experts_used: int = 4
    embedding: int = 1024
    feed_forward: int = 768
    heads: int = 16
    heads_kv: int = 4
    key_length: int = 64
    context_length: int = 131072


@dataclass(frozen=True)
class Tensor:
    """One tensor: `dimensions` innermost first, as GGUF has them; `quantized` means Q4_0, else F32."""

    name: str
    dimensions: tuple[int, ...]
    quantized: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor's data, without padding."""
        elements = 1
        for dimension in self.dimensions:
            elements *= dimension
        return elements // BLOCK_ELEMENTS * BLOCK_BYTES if self.quantized else elements * ROW_BYTES_F32


def check_shape(shape: ModelShape) -> None:
    """Raise ShapeError unless llama.cpp can load a model of this shape (block sizes, head counts, expert counts)."""
    for name in ("embedding", "feed_forward", "key_length"):
        if getattr(shape, name) <= 0 or getattr(shape, name) % BLOCK_ELEMENTS:
            raise ShapeError(f"{name} is {getattr(shape, name)}; Q4_0 needs a positive multiple of {BLOCK_ELEMENTS}")
    for name in ("layers", "experts", "experts_used", "heads", "heads_kv", "context_length"):
        if getattr(shape, name) < 1:
            raise ShapeError(f"{name} is {getattr(shape, name)}; it must be at least 1")
    if shape.experts_used > shape.experts:
        raise ShapeError(f"experts used ({shape.experts_used}) are more than there are ({shape.experts})")
    if shape.heads % shape.heads_kv:
        raise ShapeError(f"heads ({shape.heads}) must be a multiple of heads-kv ({shape.heads_kv})")
    if shape.layers > 512 or shape.experts > 512:
        raise ShapeError(f"llama.cpp takes at most 512 layers and experts, not {shape.layers} and {shape.experts}")


def tensors(shape: ModelShape) -> Iterator[Tensor]:
    """All tensors in file order; the experts of a tensor are its outermost dimension, one contiguous slice each."""
    embedding, forward, key = shape.embedding, shape.feed_forward, shape.key_length
    yield Tensor("token_embd.weight", (embedding, VOCABULARY), False)
    yield Tensor("output.weight", (embedding, VOCABULARY), False)
    yield Tensor("output_norm.weight", (embedding,), False)
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        yield Tensor(block + "attn_norm.weight", (embedding,), False)
        yield Tensor(block + "attn_q.weight", (embedding, shape.heads * key), True)
        yield Tensor(block + "attn_k.weight", (embedding, shape.heads_kv * key), True)
        yield Tensor(block + "attn_v.weight", (embedding, shape.heads_kv * key), True)
        yield Tensor(block + "attn_output.weight", (shape.heads * key, embedding), True)
        yield Tensor(block + "attn_q_norm.weight", (key,), False)
        yield Tensor(block + "attn_k_norm.weight", (key,), False)
        yield Tensor(block + "ffn_norm.weight", (embedding,), False)
        yield Tensor(block + "ffn_gate_inp.weight", (embedding, shape.experts), False)
        yield Tensor(block + "ffn_gate_exps.weight", (embedding, forward, shape.experts), True)
        yield Tensor(block + "ffn_up_exps.weight", (embedding, forward, shape.experts), True)
        yield Tensor(block + "ffn_down_exps.weight", (forward, embedding, shape.experts), True)


def padded(size_bytes: int) -> int:
    """`size_bytes` rounded up to the alignment of a GGUF's data section."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def data_bytes(shape: ModelShape) -> int:
    """Bytes of the data section: the file without its header (some KiB)."""
    return sum(padded(tensor.size_bytes) for tensor in tensors(shape))


def expert_slice_bytes(shape: ModelShape) -> int:
    """Bytes of one expert's slice of one tensor; an expert is three of them a layer."""
    return shape.embedding * shape.feed_forward // BLOCK_ELEMENTS * BLOCK_BYTES


def kv_bytes_per_token(shape: ModelShape) -> int:
    """Bytes of KV cache one token of context costs with the default F16 cache: K and V of every layer."""
    return shape.layers * shape.heads_kv * shape.key_length * 2 * 2


def shape_for_size(size_bytes: int, template: ModelShape, *, layers: int | None, experts: int | None) -> ModelShape:
    """`template` with layers and experts chosen so that the data is nearest to `size_bytes`; a given one is kept.

    Of all shapes within one percent the one with about four experts a layer for each layer wins, as in published
    models. Raises ShapeError when no shape comes within three percent.
    """
    per_layer = data_bytes(replace(template, layers=1)) - data_bytes(replace(template, layers=0))
    expert = data_bytes(replace(template, layers=1, experts=template.experts + 1)) - data_bytes(
        replace(template, layers=1)
    )
    outside = data_bytes(replace(template, layers=0))
    fixed = per_layer - template.experts * expert
    best: tuple[float, float, int, int] | None = None
    for count in [layers] if layers is not None else range(2, 129):
        wanted = ((size_bytes - outside) / count - fixed) / expert
        for number in [experts] if experts is not None else {int(wanted), int(wanted) + 1}:
            if not template.experts_used <= number <= 512:
                continue
            error = abs(outside + count * (fixed + number * expert) - size_bytes) / size_bytes
            rank = (max(error, 0.01), abs(number / count - 4.0), count, number)
            best = min(best, rank) if best else rank
    if best is None or best[0] > 0.03:
        raise ShapeError(
            f"no choice of layers and experts comes within 3 % of {size_bytes} bytes with these dimensions;"
            " change --size, or give smaller --embd and --ff, or fewer --used"
        )
    return replace(template, layers=best[2], experts=best[3])


def default_dimensions(size_bytes: int) -> tuple[int, int]:
    """Embedding and feed-forward length for a file of this size: slices of 432 KiB, or small ones for small files."""
    return (1024, 768) if size_bytes >= _SMALL_BYTES else (256, 256)
