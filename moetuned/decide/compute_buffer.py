"""How much memory llama.cpp's compute graph and the process itself take: a range, since it depends on the build.

Three parts grow: the attention mask (two bytes for each cell and token of a micro-batch), the largest of logits, three sets of
expert activations and the queries, and five activations of the embedding's width. For plain attention that is to the MiB
what llama-fit-params of b11434 says (tests/bench/test_bench_compute_buffers.py); other graphs differ, hence a range around it.
"""

from __future__ import annotations

from moetuned.decide.weights import Weights
from moetuned.gguf.header import GgufError
from moetuned.gguf.kv_cache import KvSettings
from moetuned.gguf.metadata import Metadata, architecture, integer, layer_integers
from moetuned.schema.estimate import Amount

MIB = 1 << 20
_PROCESS_LOW_BYTES = 50 * MIB
_PROCESS_HIGH_BYTES = 200 * MIB
_PAGE_TABLE_SHARE = 512  # eight bytes for each 4 KiB page that is mapped
_PADDING_CELLS = 256
_MOST_ELEMENTS = 1 << 24  # in a row of any published model: below 2^20
_LOW_SHARE, _HIGH_SHARE = 0.7, 1.4


def compute_buffer(metadata: Metadata, weights: Weights, settings: KvSettings) -> Amount:
    """Bytes of the compute buffers of one context. Raises GgufError for sizes that no model has."""
    name = architecture(metadata)
    batch = settings.ubatch_tokens
    cells = -(-settings.context_length // _PADDING_CELLS) * _PADDING_CELLS
    logits = weights.vocabulary * 4
    embedding = weights.embedding or integer(metadata, f"{name}.embedding_length") or 0
    heads = max(layer_integers(metadata, f"{name}.attention.head_count", 1) or (0,))
    key = integer(metadata, f"{name}.attention.key_length") or (embedding // heads if heads else 0)
    used = max(layer_integers(metadata, f"{name}.expert_used_count", 1) or (1,))
    for what, size in (("attention.head_count", heads), ("attention.key_length", key)):
        _plausible(f"{name}.{what}", size)
    dense_forward = max(layer_integers(metadata, f"{name}.feed_forward_length", 1) or (0,))
    expert_forward = integer(metadata, f"{name}.expert_feed_forward_length") or dense_forward
    _plausible(f"{name}.{'expert_' if expert_forward != dense_forward else ''}feed_forward_length", expert_forward)
    forward = used * expert_forward
    activations = 3 * batch * 4 * max(forward, heads * key)
    common = 2 * cells * batch + 5 * batch * 4 * embedding
    # A server asks for the logits of the last token of each slot; some builds make room for those of all.
    low = common + max(settings.slots * logits, activations)
    high = common + max(batch * logits, activations)
    return Amount(int(low * _LOW_SHARE), int(high * _HIGH_SHARE) + 32 * MIB, f"rough, micro-batch {batch}")


def _plausible(key: str, size: int) -> None:
    if size > _MOST_ELEMENTS:
        raise GgufError(f"{key} is {size}, which no model has; the header is damaged: download the file again")


def process_overhead(mapped_bytes: int) -> Amount:
    """The process without buffers, and page tables for `mapped_bytes` of resident model."""
    tables = mapped_bytes // _PAGE_TABLE_SHARE
    return Amount(_PROCESS_LOW_BYTES + tables, _PROCESS_HIGH_BYTES + tables, "measured, b11434")
