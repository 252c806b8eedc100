"""How much memory llama.cpp's compute graph and the process itself take: a range, since it depends on the build.

Parts that grow: the attention mask (cells times micro-batch), one row of logits for each token of a micro-batch that may
be asked for, and activations, of which routed experts have one set for each expert used. The range was compared with
llama-fit-params of b11434 for the architectures in `tests/bench/compute_buffers.py`; what it prints is in docs/estimate.md.
"""

from __future__ import annotations

from moetuned.decide.weights import Weights
from moetuned.gguf.kv_cache import KvSettings
from moetuned.gguf.metadata import Metadata, architecture, integer, layer_integers
from moetuned.schema.estimate import Amount

MIB = 1 << 20
_PROCESS_LOW_BYTES = 50 * MIB
_PROCESS_HIGH_BYTES = 200 * MIB
_PAGE_TABLE_SHARE = 512  # eight bytes for each 4 KiB page that is mapped
_PADDING_CELLS = 256


def compute_buffer(metadata: Metadata, weights: Weights, settings: KvSettings) -> Amount:
    """Bytes of the compute buffers of one context."""
    name = architecture(metadata)
    batch = settings.ubatch_tokens
    cells = -(-settings.context_length // _PADDING_CELLS) * _PADDING_CELLS
    mask = cells * batch
    logits = weights.vocabulary * 4
    embedding = weights.embedding or integer(metadata, f"{name}.embedding_length") or 0
    heads = max(layer_integers(metadata, f"{name}.attention.head_count", 1) or (0,))
    key = integer(metadata, f"{name}.attention.key_length") or (embedding // heads if heads else 0)
    used = max(layer_integers(metadata, f"{name}.expert_used_count", 1) or (1,))
    forward = integer(metadata, f"{name}.expert_feed_forward_length") or 0
    dense_forward = max(layer_integers(metadata, f"{name}.feed_forward_length", 1) or (0,))
    experts = batch * 4 * used * max(embedding, forward)
    attention = batch * 4 * heads * key
    widest = max(experts, attention, batch * 4 * dense_forward)
    low = 2 * mask + settings.slots * logits + widest
    high = 6 * mask + batch * logits + 3 * experts + 4 * attention + batch * 4 * (8 * embedding + 2 * dense_forward)
    return Amount(
        low // 2 + 8 * MIB,
        high + 64 * MIB,
        f"rough, micro-batch {batch}",
    )


def process_overhead(mapped_bytes: int) -> Amount:
    """The process without buffers, and page tables for `mapped_bytes` of resident model."""
    tables = mapped_bytes // _PAGE_TABLE_SHARE
    return Amount(_PROCESS_LOW_BYTES + tables, _PROCESS_HIGH_BYTES + tables, "measured, b11434")
