"""Bytes that a context costs, from metadata alone: attention caches, sliding windows, MLA, indexers, recurrent state.

llama.cpp allocates all of it at start and zeroes it, so this is what a backend holds in anonymous memory from its first
second to its last. The rules are those of `llama_model::create_memory`, `llama_kv_cache`, `llama_kv_cache_iswa`,
`llama_kv_cache_dsa` and `llama_memory_recurrent` of llama.cpp b11434. Architectures with a cache class of their own, or
not known at all, get an estimate that says why it is only rough.
"""

from __future__ import annotations

import msgspec

from moetuned.gguf import kv_layers
from moetuned.gguf.metadata import Metadata
from moetuned.gguf.tensor_types import TENSOR_TYPES, TensorType

KV_TYPES: dict[str, TensorType] = {
    kind.name.lower(): kind
    for kind in TENSOR_TYPES.values()
    if kind.name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "IQ4_NL", "Q5_0", "Q5_1")
}
"""What `--cache-type-k` and `--cache-type-v` accept."""

_PADDING_CELLS = 256
_STATE_ELEMENT_BYTES = 4
_MAX_SLOTS = 256
_MAX_CONTEXT = 1 << 31


class KvSettings(msgspec.Struct, frozen=True):
    """What the backend is started with: `-c`, `-np`, `--kv-unified`, `-ctk`, `-ctv`, `-ub`, `--swa-full`, `-fa`.

    `context_length` is in tokens, for all slots together. llama-server without `-np` takes 4 slots, unified.
    """

    context_length: int
    slots: int = 1
    unified: bool = False
    type_k: str = "f16"
    type_v: str = "f16"
    ubatch_tokens: int = 512
    full_window: bool = False
    flash_attention: bool = True


class KvCache(msgspec.Struct, frozen=True):
    """Bytes of the caches of one context.

    `attention_bytes` grows with the context length, `window_bytes` (sliding-window layers) up to the window,
    `indexer_bytes` (sparse attention) with the context length, `recurrent_bytes` only with the slots.
    `rough` is one sentence saying why the figures are not exact; None when they are.
    """

    attention_bytes: int
    window_bytes: int
    indexer_bytes: int
    recurrent_bytes: int
    rough: str | None = None

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.attention_bytes + self.window_bytes + self.indexer_bytes + self.recurrent_bytes


def kv_cache(metadata: Metadata, settings: KvSettings) -> KvCache:
    """The caches of a model with this metadata.

    Raises GgufError when the metadata lacks what is needed, ValueError for settings that llama.cpp refuses too.
    """
    _check(settings)
    layers = kv_layers.kv_layers(metadata)
    kind_k, kind_v = KV_TYPES[settings.type_k], KV_TYPES[settings.type_v]
    streams, cells = _cells(settings)
    window_cells = _window_cells(settings, layers.window_tokens, cells)
    # Without flash attention V is stored transposed, every layer as wide as the widest.
    flash = settings.flash_attention and layers.flash_attention
    widest = None if flash else max((layer.v_elements for layer in layers.attention), default=0)
    per_cell = [
        (layer.window, _row(kind_k, layer.k_elements) + _v_row(kind_v, layer.v_elements, widest))
        for layer in layers.attention
    ]
    return KvCache(
        attention_bytes=streams * cells * sum(size for window, size in per_cell if not window),
        window_bytes=streams * window_cells * sum(size for window, size in per_cell if window),
        indexer_bytes=streams * cells * sum(_row(kind_k, elements) for elements in layers.indexer_elements),
        recurrent_bytes=_STATE_ELEMENT_BYTES * layers.recurrent_elements * settings.slots,
        rough=layers.rough or _refused(layers, settings, flash),
    )


def kv_bytes_per_token(metadata: Metadata, type_k: str = "f16", type_v: str = "f16") -> int:
    """Bytes that one more token of context costs, once sliding windows are full. Raises as `kv_cache`."""
    cache = kv_cache(metadata, KvSettings(_PADDING_CELLS, type_k=type_k, type_v=type_v))
    return (cache.attention_bytes + cache.indexer_bytes) // _PADDING_CELLS


def _check(settings: KvSettings) -> None:
    for name in (settings.type_k, settings.type_v):
        if name not in KV_TYPES:
            raise ValueError(f"{name!r} is no cache type; llama.cpp knows {', '.join(sorted(KV_TYPES))}")
    if not 0 < settings.context_length < _MAX_CONTEXT:
        raise ValueError(f"a context length of {settings.context_length} tokens is not possible")
    if not 0 < settings.slots <= _MAX_SLOTS:
        raise ValueError(f"{settings.slots} slots are not possible; llama.cpp allows 1 to {_MAX_SLOTS}")
    if settings.ubatch_tokens <= 0:
        raise ValueError(f"a micro-batch of {settings.ubatch_tokens} tokens is not possible")


def _padded(cells: int) -> int:
    return -(-cells // _PADDING_CELLS) * _PADDING_CELLS


def _cells(settings: KvSettings) -> tuple[int, int]:
    """Streams and cells of each; `-c` is shared by the slots unless the cache is unified."""
    context = _padded(settings.context_length)
    if settings.unified:
        return 1, context
    return settings.slots, _padded(max(1, context // settings.slots))


def _window_cells(settings: KvSettings, window_tokens: int, cells: int) -> int:
    if settings.full_window:
        return cells
    sequences = settings.slots if settings.unified else 1
    return _padded(min(cells, window_tokens * sequences + settings.ubatch_tokens))


def _row(kind: TensorType, elements: int) -> int:
    return elements * kind.block_bytes // kind.block_elements


def _v_row(kind: TensorType, elements: int, widest: int | None) -> int:
    # A layer without V of its own (MLA keeps it inside K) has none to widen.
    return _row(kind, widest if widest is not None and elements else elements)


def _refused(layers: kv_layers.KvLayers, settings: KvSettings, flash: bool) -> str | None:
    """Why llama.cpp would not start with these settings (`llama_init_from_model`); None when it would."""
    block_k, block_v = KV_TYPES[settings.type_k].block_elements, KV_TYPES[settings.type_v].block_elements
    if layers.compressed and settings.type_k != settings.type_v:
        return f"llama.cpp refuses K of type {settings.type_k} with V of type {settings.type_v} for this model: they must be equal"
    if not flash:
        return f"llama.cpp refuses V of type {settings.type_v} without flash attention" if block_v > 1 else None
    if any(layer.k_head % block_k for layer in layers.attention):
        return f"llama.cpp refuses K of type {settings.type_k} for heads of this size"
    if any(layer.v_head % block_v for layer in layers.attention):
        return f"llama.cpp refuses V of type {settings.type_v} for heads of this size"
    return None
