"""What a model's KV cache costs as it is, with one slot, and with q8_0, from its metadata and how the backend was started."""

from __future__ import annotations

import msgspec

from moetuned.decide.ledger import DEFAULT_CHECKPOINTS, DEFAULT_SLOTS
from moetuned.decide.relief_ladder import MIB, SMALL_TYPE, KvChoices, KvCost
from moetuned.decide.supervision import LaunchPlan
from moetuned.gguf.header import GgufError
from moetuned.gguf.kv_cache import KvSettings, kv_bytes_per_token, kv_cache
from moetuned.gguf.metadata import Metadata
from moetuned.schema.backend_description import BackendDescription


def kv_choices(
    metadata: Metadata,
    context_length: int | None,
    slots: int | None,
    cache_type_k: str | None,
    cache_type_v: str | None,
    ubatch_tokens: int | None,
    unified: bool | None = None,
) -> KvChoices | None:
    """The choices, None where they cannot be known. What is None was not said at the start: llama-server's default then.

    Without a number of slots those are four that share one cache; with one, each has its part of it, unless `unified` says otherwise.
    """
    if context_length is None:
        return None
    now = KvSettings(
        context_length,
        slots or DEFAULT_SLOTS,
        unified=slots is None if unified is None else unified,
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


def plan_bytes(metadata: Metadata, said: BackendDescription, plan: LaunchPlan) -> int | None:
    """KV cache, prompt cache and checkpoints of a llama-server that is started with `plan`, at their largest; None: not known.

    What the plan does not say the command line may have (`said`), else it is llama-server's default.
    """
    slots = plan.slots if plan.slots is not None else said.slots
    settings = KvSettings(
        plan.context_length,
        slots or DEFAULT_SLOTS,
        unified=slots is None if said.kv_unified is None else said.kv_unified,
        type_k=plan.cache_type or said.cache_type_k or "f16",
        type_v=plan.cache_type or said.cache_type_v or "f16",
        ubatch_tokens=said.micro_batch_tokens or 512,
    )
    growth = growth_bytes(metadata, said, plan, plan.prompt_cache_mib or 0)
    try:
        return None if growth is None else kv_cache(metadata, settings).total_bytes + growth
    except (GgufError, ValueError):
        return None


def growth_bytes(metadata: Metadata, said: BackendDescription, plan: LaunchPlan, cache_mib: int) -> int | None:
    """What a prompt cache of `cache_mib` and the checkpoints of `plan` grow to; None: not known."""
    slots = plan.slots if plan.slots is not None else said.slots
    try:
        alone = kv_cache(metadata, KvSettings(plan.context_length))
    except (GgufError, ValueError):
        return None
    checkpoints = DEFAULT_CHECKPOINTS if plan.checkpoints is None else plan.checkpoints
    each = alone.window_bytes + alone.recurrent_bytes
    return cache_mib * MIB + checkpoints * (slots or DEFAULT_SLOTS) * each


def _small(settings: KvSettings) -> KvSettings:
    return msgspec.structs.replace(settings, type_k=SMALL_TYPE, type_v=SMALL_TYPE)


def _cost(metadata: Metadata, settings: KvSettings) -> KvCost:
    cache = kv_cache(metadata, settings)
    per_token = kv_bytes_per_token(metadata, settings.type_k, settings.type_v)
    as_it_is = kv_cache(metadata, msgspec.structs.replace(settings, type_k="f16", type_v="f16"))
    # A refusal depends on the type; what makes an architecture's figures rough does not.
    refused = cache.rough if cache.rough != as_it_is.rough else None
    return KvCost(cache.total_bytes, per_token, refused)
