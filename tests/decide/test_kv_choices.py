"""What other settings of a KV cache would cost."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.model_metadata import MODELS

from moetuned.decide.kv_choices import growth_bytes, kv_choices, plan_bytes
from moetuned.decide.supervision import LaunchPlan
from moetuned.gguf.kv_cache import KvSettings, kv_cache
from moetuned.schema.backend_description import BackendDescription


def choices(model: str, **said: Any) -> Any:
    settings = {"slots": 4, "cache_type_k": None, "cache_type_v": None, "ubatch_tokens": None, **said}
    return kv_choices(MODELS[model], settings.pop("context_length", 16384), **settings)


def test_they_are_what_the_cache_would_be() -> None:
    found = choices("gpt-oss-120b")
    assert found.now.size_bytes == kv_cache(MODELS["gpt-oss-120b"], KvSettings(16384, slots=4)).total_bytes
    small = KvSettings(16384, type_k="q8_0", type_v="q8_0")
    assert found.one_slot_small.size_bytes == kv_cache(MODELS["gpt-oss-120b"], small).total_bytes
    assert found.small.bytes_per_token == found.now.bytes_per_token * 34 // 64


def test_one_slot_frees_windows_and_states_and_nothing_else() -> None:
    plain, windowed, recurrent = (choices(name) for name in ("qwen3moe-30b", "gpt-oss-120b", "qwen3next"))
    assert plain.one_slot.size_bytes == plain.now.size_bytes
    assert plain.checkpoint_bytes == 0
    assert windowed.one_slot.size_bytes < windowed.now.size_bytes
    assert windowed.checkpoint_bytes > 0
    freed = recurrent.now.size_bytes - recurrent.one_slot.size_bytes
    assert freed == 3 * recurrent.checkpoint_bytes > 0


def test_slots_that_were_not_said_share_one_cache() -> None:
    shared = kv_cache(MODELS["gpt-oss-120b"], KvSettings(16384, slots=4, unified=True)).total_bytes
    assert choices("gpt-oss-120b", slots=None).now.size_bytes == shared


def test_a_type_that_is_refused_says_so() -> None:
    odd = {**MODELS["qwen3moe-30b"], "qwen3moe.attention.key_length": 80, "qwen3moe.attention.value_length": 80}
    found = kv_choices(odd, 16384, 4, None, None, None)
    assert found is not None
    assert found.now.refused is None
    assert "refuses" in (found.small.refused or "")


@pytest.mark.parametrize("model", MODELS)
def test_no_model_gets_more_by_less(model: str) -> None:
    found = choices(model)
    assert found.one_slot.size_bytes <= found.now.size_bytes
    assert (found.small.size_bytes < found.now.size_bytes) == (found.now.bytes_per_token > 0)
    assert found.one_slot_small.size_bytes <= found.small.size_bytes
    assert found.now.refused is None


def test_what_cannot_be_known_is_none() -> None:
    assert kv_choices({"general.architecture": "llama"}, 4096, 1, None, None, None) is None
    assert kv_choices(MODELS["qwen3moe-30b"], None, 1, None, None, None) is None
    assert kv_choices(MODELS["qwen3moe-30b"], 4096, 1, "turbo3", None, None) is None


def test_what_a_start_costs_is_its_cache_and_all_that_its_caches_grow_to() -> None:
    metadata, said = MODELS["gpt-oss-120b"], BackendDescription(slots=2, cache_type_k="q8_0", cache_type_v="q8_0")
    plan = LaunchPlan(16384, 64, None, 3)
    found = choices("gpt-oss-120b", slots=2, cache_type_k="q8_0", cache_type_v="q8_0")
    grows = growth_bytes(metadata, said, plan, 64)
    assert grows == (64 << 20) + 3 * 2 * choices("gpt-oss-120b").checkpoint_bytes
    assert plan_bytes(metadata, said, plan) == found.now.size_bytes + grows
    more = plan_bytes(metadata, said, LaunchPlan(16384, 64, 4, 3, "f16"))
    assert more == choices("gpt-oss-120b").now.size_bytes + (64 << 20) + 12 * choices("gpt-oss-120b").checkpoint_bytes
    assert plan_bytes({"general.architecture": "llama"}, said, plan) is None
    assert plan_bytes(metadata, said, LaunchPlan(16384, cache_type="turbo3")) is None


def test_whether_the_slots_share_one_cache_goes_before_what_is_usual() -> None:
    apart = kv_cache(MODELS["gpt-oss-120b"], KvSettings(16384, slots=4)).total_bytes
    shared = kv_cache(MODELS["gpt-oss-120b"], KvSettings(16384, slots=4, unified=True)).total_bytes
    assert apart != shared
    assert choices("gpt-oss-120b", unified=True).now.size_bytes == shared
    assert choices("gpt-oss-120b", slots=None, unified=False).now.size_bytes == apart
    costs = [
        plan_bytes(
            MODELS["gpt-oss-120b"], BackendDescription(slots=4, kv_unified=one), LaunchPlan(16384, checkpoints=0)
        )
        for one in (None, False, True)
    ]
    assert costs == [apart, apart, shared]
