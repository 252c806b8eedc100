"""Typed reading of a header's metadata: a value of another type than llama.cpp would accept counts as absent."""

from __future__ import annotations

from moetuned.gguf.header import GgufError, Value

MAX_LAYERS = 512
"""As llama.cpp b11434 (LLAMA_MAX_LAYERS)."""

Metadata = dict[str, Value]


def integer(metadata: Metadata, key: str) -> int | None:
    """An integer that is not negative; None when absent or of another kind."""
    value = metadata.get(key)
    return value if type(value) is int and value >= 0 else None


def layer_integers(metadata: Metadata, key: str, layers: int) -> tuple[int, ...] | None:
    """One integer a layer, from an array of at least `layers` or from one value for all; None when absent.

    Booleans count as 0 and 1. Raises GgufError for an array that is too short or holds something else.
    """
    value = metadata.get(key)
    if value is None or isinstance(value, str | float):
        return None
    if not isinstance(value, tuple):
        return (int(value),) * layers if value >= 0 else None
    if len(value) < layers:
        raise GgufError(f"{key} holds {len(value)} values for {layers} layers")
    if any(isinstance(one, float) or one < 0 for one in value):
        raise GgufError(f"{key} holds something else than counts: {list(value)[:8]}")
    return tuple(int(one) for one in value[:layers])


def architecture(metadata: Metadata) -> str:
    """`general.architecture`, which prefixes most other keys. Raises GgufError when it is absent."""
    value = metadata.get("general.architecture")
    if not isinstance(value, str) or not value:
        raise GgufError("it has no general.architecture, so it is no language model (or not the first part of one)")
    return value


def block_count(metadata: Metadata) -> int:
    """All blocks, next-token-prediction blocks included. Raises GgufError when absent or impossible."""
    key = f"{architecture(metadata)}.block_count"
    value = integer(metadata, key)
    if value is None:
        raise GgufError(f"it has no {key}, so its layers are unknown")
    if not 0 < value <= MAX_LAYERS:
        raise GgufError(f"{key} is {value}; llama.cpp knows up to {MAX_LAYERS} layers")
    return value


def trunk_count(metadata: Metadata) -> int:
    """Blocks that every token passes, without the next-token-prediction blocks at the end. Raises GgufError."""
    blocks = block_count(metadata)
    key = f"{architecture(metadata)}.nextn_predict_layers"
    extra = integer(metadata, key) or 0
    if extra > blocks:
        raise GgufError(f"{key} is {extra}, more than the {blocks} blocks there are")
    return blocks - extra
