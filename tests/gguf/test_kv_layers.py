from __future__ import annotations

from typing import Any

import pytest
from fakes.model_metadata import MODELS

from moetuned.gguf.header import GgufError
from moetuned.gguf.kv_layers import kv_layers


def small(name: str, layers: int = 8, **more: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "general.architecture": name,
        f"{name}.block_count": layers,
        f"{name}.embedding_length": 64,
        f"{name}.attention.head_count": 4,
        f"{name}.attention.head_count_kv": 2,
    }
    metadata.update({f"{name}.{key.replace('__', '.')}": value for key, value in more.items()})
    return metadata


def pattern(metadata: dict[str, Any]) -> str:
    """One letter a layer with a cache: w for a window, f for all of the context."""
    return "".join("w" if layer.window else "f" for layer in kv_layers(metadata).attention)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (small("qwen3moe"), "ffffffff"),
        (small("qwen3moe", attention__sliding_window=128), "ffffffff"),
        (small("phimoe", attention__sliding_window=128), "ffffffff"),
        (small("gpt-oss", attention__sliding_window=128), "wfwfwfwf"),
        (small("gemma2"), "wfwfwfwf"),
        (small("gemma3", attention__sliding_window=512), "wwwwwfww"),
        (small("gemma3"), "ffffffff"),
        (small("llama4"), "wwwfwwwf"),
        (small("llama4", attention__sliding_window=0), "ffffffff"),
        (small("smallthinker", attention__sliding_window=128), "fwwwfwww"),
        (small("laguna", attention__sliding_window=128), "fwwwfwww"),
        (small("laguna"), "ffffffff"),
        (small("cohere2", attention__sliding_window=128, attention__sliding_window_pattern=2), "wfwfwfwf"),
        (
            small(
                "mimo2",
                attention__sliding_window=128,
                attention__sliding_window_pattern=(False, True, True, True, False, True, True, True),
            ),
            "fwwwfwww",
        ),
        (small("exaone4", attention__sliding_window=128), "ffffffff"),
        (small("exaone4", layers=64), "wwwf" * 16),
        (small("glm4moe", nextn_predict_layers=2), "ffffff"),
        (small("qwen3next"), "ff"),
        (small("qwen3next", full_attention_interval=2), "ffff"),
        (small("qwen3next", attention__recurrent_layers=(1, 1, 1, 1, 1, 1, 1, 0)), "f"),
        (small("gemma3n", layers=30, attention__sliding_window=512), "wwwwf" * 4),
        (
            small(
                "gemma4",
                attention__sliding_window=512,
                attention__sliding_window_pattern=(True, True, True, False) * 2,
                attention__shared_kv_layers=3,
            ),
            "wwwfw",
        ),
        (
            small(
                "nemotron_h_moe",
                layers=4,
                attention__head_count_kv=(0, 0, 2, 0),
                feed_forward_length=(0, 64, 0, 64),
            ),
            "f",
        ),
        (small("lfm2", layers=3, attention__head_count_kv=(0, 2, 2), attention__sliding_window=64), "ww"),
        (small("mamba2", ssm__conv_kernel=4, ssm__inner_size=8, ssm__state_size=4), ""),
        (small("bert"), ""),
    ],
)
def test_patterns(metadata: dict[str, Any], expected: str):
    assert pattern(metadata) == expected
    assert kv_layers(metadata).rough is None


def test_windows_that_the_architecture_fixes():
    assert kv_layers(small("llama4", attention__sliding_window=128)).window_tokens == 8192
    assert kv_layers(small("smallthinker", attention__sliding_window=128)).window_tokens == 4096
    assert kv_layers(small("gemma2")).window_tokens == 4096
    assert kv_layers(small("exaone-moe")).window_tokens == 128


def test_head_sizes_of_window_layers():
    metadata = small(
        "step35",
        layers=2,
        attention__sliding_window=128,
        attention__sliding_window_pattern=(True, False),
        attention__head_count_kv=(4, 2),
        attention__key_length=32,
        attention__value_length=16,
        attention__key_length_swa=8,
    )
    assert [(layer.k_elements, layer.v_elements) for layer in kv_layers(metadata).attention] == [(32, 64), (64, 32)]


def test_a_missing_pattern_is_rough_and_never_too_small():
    layers = kv_layers(small("mimo2", attention__sliding_window=128))
    assert "sliding_window_pattern is missing" in (layers.rough or "")
    assert not any(layer.window for layer in layers.attention)


def test_recurrent_layers_of_nemotron_are_neither_attention_nor_ffn():
    metadata = small(
        "nemotron_h",
        layers=4,
        attention__head_count_kv=(0, 0, 2, 0),
        feed_forward_length=(0, 64, 0, 64),
        ssm__conv_kernel=4,
        ssm__inner_size=8,
        ssm__state_size=4,
        ssm__group_count=2,
    )
    assert kv_layers(metadata).recurrent_elements == 3 * (8 + 2 * 2 * 4) + 4 * 8


def test_indexer_layers():
    assert kv_layers(MODELS["glm-dsa-5.2"]).indexer_elements == (128,) * 21
    types = {"glm-dsa.attention.indexer.types": (1, 0, 1) * 26}
    assert kv_layers(MODELS["glm-dsa-5.2"] | types).indexer_elements == (128,) * 52
    assert kv_layers(MODELS["glm-dsa-5"]).indexer_elements == (128,) * 78


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (small("glm-dsa"), "no glm-dsa.attention.indexer.key_length"),
        (small("qwen3moe", attention__head_count_kv=(2, 2)), "holds 2 values for 8 layers"),
        (small("qwen3moe", nextn_predict_layers=9), "more than the 8 blocks"),
        (small("qwen3moe", layers=513), "up to 512 layers"),
        (small("qwen3moe", layers=0), "up to 512 layers"),
        (small("qwen3moe", embedding_length="x"), "its head size is unknown"),
    ],
)
def test_contradictions(metadata: dict[str, Any], expected: str):
    with pytest.raises(GgufError, match=expected):
        kv_layers(metadata)
