"""What a model's KV cache costs as it is, with one slot, and with q8_0, from its metadata and how the backend was started."""

from __future__ import annotations

import msgspec

from moetuned.decide.ledger import DEFAULT_SLOTS
from moetuned.decide.relief_ladder import SMALL_TYPE, KvChoices, KvCost
from moetuned.gguf.header import GgufError
from moetuned.gguf.kv_cache import KvSettings, kv_bytes_per_token, kv_cache
from moetuned.gguf.metadata import Metadata


def kv_choices(
    metadata: Metadata,
    context_length: int | None,
    slots: int | None,
    cache_type_k: str | None,
    cache_type_v: str | None,
    ubatch_tokens: int | None,
) -> KvChoices | None:
    """The choices, None where they cannot be known. What is None was not said at the start: llama-server's default then.

    Without a number of slots those are four that share one cache; with one, each has its part of it.
    """
    if context_length is None:
        return None
    now = KvSettings(
        context_length,
        slots or DEFAULT_SLOTS,
        unified=slots is None,
        type_k=cache_type_k or "f16",
        type_v=cache_type_v or "f16",
        ubatch_tokens=ubatch_tokens or 512,
    )
    one = msgspec.structs.replace(now, slots=1, unified=False)
    try:
        alone = kv_cache(metadata, one)
        return KvChoices(
            now=_cost(metadata, now),
            one_slot=_cost(metadata, one),
            small=_cost(metadata, _small(now)),
            one_slot_small=_cost(metadata, _small(one)),
            checkpoint_bytes=alone.window_bytes + alone.recurrent_bytes,
        )
    except (GgufError, ValueError):
        return None


def _small(settings: KvSettings) -> KvSettings:
    return msgspec.structs.replace(settings, type_k=SMALL_TYPE, type_v=SMALL_TYPE)


def _cost(metadata: Metadata, settings: KvSettings) -> KvCost:
    cache = kv_cache(metadata, settings)
    per_token = kv_bytes_per_token(metadata, settings.type_k, settings.type_v)
    as_it_is = kv_cache(metadata, msgspec.structs.replace(settings, type_k="f16", type_v="f16"))
    # A refusal depends on the type; what makes an architecture's figures rough does not.
    refused = cache.rough if cache.rough != as_it_is.rough else None
    return KvCost(cache.total_bytes, per_token, refused)
