from __future__ import annotations

import pytest
from fakes.model_metadata import MODELS
from hypothesis import given
from hypothesis import strategies as st

from moetuned.gguf.header import GgufError, Value
from moetuned.gguf.kv_cache import KvSettings, kv_bytes_per_token, kv_cache

MIB = 1 << 20


@pytest.mark.parametrize(
    ("model", "per_token"),
    [
        ("qwen3moe-30b", 98_304),
        ("qwen3moe-235b", 192_512),
        ("gpt-oss-120b", 36_864),
        ("glm4moe-air", 188_416),
        ("glm4moe", 376_832),
        ("deepseek2", 70_272),
        ("glm-dsa-5.2", 95_232),
        ("glm-dsa-5", 109_824),
        ("mixtral-8x7b", 131_072),
        ("qwen3next", 24_576),
        ("minimax-m2", 253_952),
        ("llama4-scout", 49_152),
        ("ernie4_5-moe", 221_184),
        ("bailingmoe2", 65_536),
        ("dots1", 1_015_808),
        ("hunyuan-moe", 131_072),
        ("lfm2moe", 12_288),
        ("granitehybrid", 16_384),
    ],
)
def test_bytes_per_token(model: str, per_token: int):
    assert kv_bytes_per_token(MODELS[model]) == per_token
    assert kv_cache(MODELS[model], KvSettings(4096)).rough is None


@pytest.mark.parametrize(
    ("model", "context", "kv_type", "mebibytes"),
    [
        # As llama-fit-params of llama.cpp b11434 printed them.
        ("qwen3moe-30b", 131_072, "f16", 12_288),
        ("gpt-oss-120b", 32_768, "f16", 1179),
        ("gpt-oss-120b", 32_768, "q8_0", 626),
        ("deepseek2", 32_768, "f16", 2196),
        ("deepseek2", 32_768, "q8_0", 1166),
        ("qwen3next", 32_768, "f16", 843),
        ("qwen3next", 32_768, "q8_0", 483),
    ],
)
def test_totals_that_llama_cpp_reported(model: str, context: int, kv_type: str, mebibytes: int):
    cache = kv_cache(MODELS[model], KvSettings(context, type_k=kv_type, type_v=kv_type))
    assert int(cache.total_bytes / MIB) == mebibytes


def test_windows_hold_the_window_and_a_micro_batch():
    cache = kv_cache(MODELS["gpt-oss-120b"], KvSettings(32_768))
    assert cache.window_bytes == 18 * 2048 * 768
    assert kv_cache(MODELS["gpt-oss-120b"], KvSettings(32_768, ubatch_tokens=2048)).window_bytes == 18 * 2048 * 2304
    assert kv_cache(MODELS["gpt-oss-120b"], KvSettings(512)).window_bytes == 18 * 2048 * 512
    assert kv_cache(MODELS["gpt-oss-120b"], KvSettings(32_768, full_window=True)).window_bytes == 18 * 2048 * 32_768
    chunked = kv_cache(MODELS["llama4-scout"], KvSettings(131_072))
    assert chunked.window_bytes == 36 * 4096 * (8192 + 512)


def test_windows_of_slots():
    apart = kv_cache(MODELS["gpt-oss-120b"], KvSettings(32_768, slots=4))
    together = kv_cache(MODELS["gpt-oss-120b"], KvSettings(32_768, slots=4, unified=True))
    assert apart.attention_bytes == together.attention_bytes == 18 * 2048 * 32_768
    assert apart.window_bytes == 4 * 18 * 2048 * 768
    assert together.window_bytes == 18 * 2048 * (4 * 128 + 512)


def test_slots_share_the_context_and_are_padded_apart():
    cache = kv_cache(MODELS["qwen3moe-30b"], KvSettings(1000, slots=3))
    assert cache.attention_bytes == 3 * 512 * 98_304
    assert kv_cache(MODELS["qwen3moe-30b"], KvSettings(1, slots=3, unified=True)).attention_bytes == 256 * 98_304
    assert kv_cache(MODELS["qwen3moe-30b"], KvSettings(1, slots=3)).attention_bytes == 3 * 256 * 98_304


@pytest.mark.parametrize(
    ("model", "state_bytes"),
    [
        ("qwen3next", 36 * 548_864 * 4),
        ("lfm2moe", 18 * 2048 * 2 * 4),
        ("granitehybrid", 36 * (3 * (8192 + 2 * 128) + 128 * 8192) * 4),
        ("kimi-linear", 20 * (3 * 3 * 32 * 128 + 128 * 128 * 32) * 4),
        ("rwkv7", 32 * 4096 * (2 + 64) * 4),
        ("falcon-h1", 36 * (3 * (3072 + 2 * 256) + 256 * 3072) * 4),
    ],
)
def test_recurrent_state_grows_with_slots_and_not_with_context(model: str, state_bytes: int):
    assert kv_cache(MODELS[model], KvSettings(256)).recurrent_bytes == state_bytes
    assert kv_cache(MODELS[model], KvSettings(65_536, slots=3, type_k="q8_0")).recurrent_bytes == 3 * state_bytes


def test_old_deepseek_conversions_keep_all_heads():
    old = {key: value for key, value in MODELS["deepseek2"].items() if not key.endswith("_mla")}
    old |= {
        "deepseek2.attention.key_length": 192,
        "deepseek2.attention.value_length": 128,
        "deepseek2.attention.head_count_kv": 128,
    }
    assert kv_bytes_per_token(old) == 61 * 128 * (192 + 128) * 2


def test_without_flash_attention_v_is_as_wide_as_the_widest_layer():
    metadata: dict[str, Value] = {
        "general.architecture": "openelm",
        "openelm.block_count": 2,
        "openelm.embedding_length": 64,
        "openelm.attention.head_count": 4,
        "openelm.attention.head_count_kv": (1, 3),
    }
    assert kv_cache(metadata, KvSettings(256)).total_bytes == 256 * 2 * (16 + 48 + 16 + 48)
    assert kv_cache(metadata, KvSettings(256, flash_attention=False)).total_bytes == 256 * 2 * (16 + 48 + 48 + 48)


def test_what_llama_cpp_refuses_is_rough():
    model = MODELS["qwen3moe-30b"]
    assert "without flash attention" in (
        kv_cache(model, KvSettings(256, type_v="q8_0", flash_attention=False)).rough or ""
    )
    odd = MODELS["qwen3moe-30b"] | {"qwen3moe.attention.key_length": 80}
    assert "K of type q8_0" in (kv_cache(odd, KvSettings(256, type_k="q8_0")).rough or "")
    odd = MODELS["qwen3moe-30b"] | {"qwen3moe.attention.value_length": 80}
    assert "V of type q4_0" in (kv_cache(odd, KvSettings(256, type_v="q4_0")).rough or "")


def test_compressed_caches_want_equal_types_and_grok_no_flash_attention():
    assert "must be equal" in (kv_cache(MODELS["deepseek2"], KvSettings(256, type_k="q8_0")).rough or "")
    grok = {key.replace("qwen3moe", "grok"): value for key, value in MODELS["qwen3moe-30b"].items()}
    grok["general.architecture"] = "grok"
    assert kv_cache(grok, KvSettings(256)).rough is None
    assert "without flash attention" in (kv_cache(grok, KvSettings(256, type_v="q8_0")).rough or "")


def test_unknown_architectures_are_rough_and_have_figures():
    renamed = {key.replace("qwen3moe", "brandnew"): value for key, value in MODELS["qwen3moe-30b"].items()}
    cache = kv_cache(renamed | {"general.architecture": "brandnew"}, KvSettings(256))
    assert cache.attention_bytes == 256 * 98_304
    assert "'brandnew' is not known" in (cache.rough or "")


@pytest.mark.parametrize(
    "wrong",
    [
        KvSettings(0),
        KvSettings(1 << 31),
        KvSettings(256, slots=0),
        KvSettings(256, slots=257),
        KvSettings(256, type_k="q6_K"),
        KvSettings(256, type_v="f8"),
        KvSettings(256, ubatch_tokens=0),
    ],
)
def test_impossible_settings(wrong: KvSettings):
    with pytest.raises(ValueError, match=r"possible|no cache type"):
        kv_cache(MODELS["qwen3moe-30b"], wrong)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("general.architecture", "no general.architecture"),
        ("qwen3moe.block_count", "no qwen3moe.block_count"),
        ("qwen3moe.attention.head_count", "no qwen3moe.attention.head_count"),
    ],
)
def test_missing_keys_are_named(missing: str, expected: str):
    metadata = {key: value for key, value in MODELS["qwen3moe-30b"].items() if key != missing}
    with pytest.raises(GgufError, match=expected):
        kv_cache(metadata, KvSettings(256))


@given(st.sampled_from(sorted(MODELS)), st.integers(1, 40_000), st.integers(1, 8), st.booleans())
def test_more_context_never_costs_less(model: str, context: int, slots: int, unified: bool):
    less = kv_cache(MODELS[model], KvSettings(context, slots=slots, unified=unified)).total_bytes
    more = kv_cache(MODELS[model], KvSettings(context + 256, slots=slots, unified=unified)).total_bytes
    assert 0 <= less <= more


ANY_VALUE = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=3),
    st.lists(st.integers(-2, 70000) | st.booleans() | st.floats(), max_size=80).map(tuple),
)


@given(st.sampled_from(sorted(MODELS)), st.data())
def test_hostile_metadata_ends_in_a_gguf_error(model: str, data: st.DataObject):
    metadata = dict(MODELS[model])
    for key in data.draw(st.lists(st.sampled_from(sorted(metadata)), max_size=3)):
        metadata[key] = data.draw(ANY_VALUE)
    try:
        cache = kv_cache(metadata, KvSettings(4096, slots=2))
    except GgufError:
        return
    assert cache.total_bytes >= 0
