"""The oracle for `kv_cache`: a real llama.cpp allocates the caches of small models of every architecture."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import llama_cpp_kv

from moetuned.gguf.kv_cache import KvSettings, kv_cache
from moetuned.gguf.kv_layers import exact_architectures

pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None, reason="needs the llama.cpp of the xllamacpp wheel"
    ),
]

MIB = 1 << 20
LAYERS = 8
SETTINGS = (
    KvSettings(4096),
    KvSettings(4096, slots=3, type_k="q8_0", type_v="q8_0"),
    KvSettings(8192, slots=4, unified=True, type_k="q8_0", type_v="q4_0", ubatch_tokens=256),
    KvSettings(1000, slots=2, full_window=True),
    KvSettings(2048, flash_attention=False),
)
HEADS_BY_LAYER = {
    "jamba": (0, 2, 0, 0, 2, 0, 0, 0),
    "granitehybrid": (0, 2, 0, 0, 2, 0, 0, 0),
    "plamo2": (0, 2, 0, 0, 2, 0, 0, 0),
    "lfm2": (0, 2, 0, 0, 2, 0, 0, 0),
    "lfm2moe": (0, 2, 0, 0, 2, 0, 0, 0),
    "kimi-linear": (0, 0, 0, 1, 0, 0, 0, 1),
    "bailingmoe3": (0, 0, 0, 1, 0, 0, 0, 1),
    "nemotron_h": (0, 2, 0, 0, 2, 0, 0, 0),
    "nemotron_h_moe": (0, 2, 0, 0, 2, 0, 0, 0),
    "openelm": (2, 2, 1, 1, 4, 4, 2, 2),
}
PATTERN_BY_LAYER = {"mimo2", "step35", "spark2_5", "granite_swa", "maple", "gemma4"}
MLA = {"deepseek2", "deepseek32", "glm-dsa", "mistral4", "kimi-linear", "bailingmoe3"}


def made_up(name: str) -> dict[str, Any]:
    """Metadata of a small model of the architecture `name`."""
    layers = {"gemma3n": 24, "hrm_text": 12, "exaone4": 64}.get(name, LAYERS)
    keys: dict[str, Any] = {
        "vocab_size": 128,
        "context_length": 4096,
        "block_count": layers,
        "embedding_length": 256,
        "feed_forward_length": 512,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.sliding_window": 300,
        "attention.q_lora_rank": 64,
        "attention.kv_lora_rank": 128,
        "attention.indexer.head_count": 4,
        "attention.indexer.key_length": 64,
        "attention.indexer.top_k": 64,
        "attention.clamp_kqv": 1.0,
        "attention.max_alibi_bias": 8.0,
        "embedding_length_per_layer_input": 64,
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "expert_feed_forward_length": 128,
        "expert_shared_feed_forward_length": 128,
        "expert_chunk_feed_forward_length": 128,
        "experts_per_group": 2,
        "expert_group_scale": 1.0,
        "expert_gating_func": 2,
        "expert_weights_scale": 1.0,
        "expert_latent_length": 128,
        "moe_latent_size": 128,
        "moe_every_n_layers": 2,
        "interleave_moe_layer_step": 2,
        "leading_dense_block_count": 1,
        "logit_scale": 1.0,
        "residual_scale": 1.0,
        "use_parallel_residual": True,
        "rope.dimension_sections": (8, 8, 8, 8),
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 512,
        "ssm.state_size": 64,
        "ssm.group_count": 2,
        "ssm.time_step_rank": 8,
        "shortconv.l_cache": 3,
        "kda.head_dim": 64,
        "kda.safe_gate": True,
        "kda.gate_lower_bound": -5.0,
        "wkv.head_size": 64,
        "time_mix_extra_dim": 32,
        "time_decay_extra_dim": 32,
        "hrm.layers_per_stack": 2,
        "hrm.h_cycles": 2,
        "hrm.l_cycles": 2,
        "num_loops": 1,
        "attention.decay_lora_rank": 32,
        "attention.iclr_lora_rank": 32,
        "attention.value_residual_mix_lora_rank": 32,
        "attention.gate_lora_rank": 32,
        "swiglu_clamp_exp": 7.0,
    }
    keys |= SPECIAL.get(name, {})
    if name in HEADS_BY_LAYER:
        keys["attention.head_count_kv"] = HEADS_BY_LAYER[name]
    if name in PATTERN_BY_LAYER:
        keys["attention.sliding_window_pattern"] = tuple(index % 4 != 3 for index in range(layers))
    if name in MLA:
        keys |= {
            "attention.head_count_kv": HEADS_BY_LAYER.get(name, 1),
            "attention.key_length": 160,
            "attention.value_length": 128,
            "attention.key_length_mla": 96,
            "attention.value_length_mla": 64,
            "rope.dimension_count": 32,
        }
    metadata = {"general.architecture": name, "tokenizer.ggml.model": "no_vocab"}
    metadata |= {"xielu.alpha_n": 1.0, "xielu.alpha_p": 1.0, "xielu.beta": 1.0, "xielu.eps": 1e-6}
    return metadata | {f"{name}.{key}": value for key, value in keys.items()}


ALL_HEADS = {"attention.head_count_kv": 4}
LOW_RANK = ALL_HEADS | {"attention.key_length": 96, "attention.value_length": 64, "rope.dimension_count": 32}
SPECIAL: dict[str, dict[str, Any]] = {
    "arwkv7": {"token_shift_count": 1},
    "chameleon": ALL_HEADS,
    "deepseek2-ocr": ALL_HEADS,
    "dots1": ALL_HEADS,
    "gemma4": {"attention.key_length_swa": 32, "attention.value_length_swa": 32, "attention.shared_kv_layers": 4},
    "kimi-linear": {"embedding_length": 128, "attention.head_count": 1, "kda.head_dim": 128},
    "minicpm3": LOW_RANK,
    "olmoe": ALL_HEADS,
    "plamo2": {"ssm.group_count": 0},
    "plm": LOW_RANK,
    "rwkv6qwen2": {"token_shift_count": 1},
}


def ask(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of llama.cpp; a case at which it aborts is answered with that, and a new process does the rest."""
    answers: list[dict[str, Any]] = []
    while len(answers) < len(cases):
        text = "".join(json.dumps(case) + "\n" for case in cases[len(answers) :])
        done = subprocess.run(
            [sys.executable, str(Path(llama_cpp_kv.__file__))],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        )
        aborted = {"error": f"exit {done.returncode}: {done.stderr[-1500:]}"}
        last = aborted
        for line in done.stdout.splitlines():
            last = json.loads(line)
            if "partial" not in last:
                answers.append(last)
                last = aborted
        if done.returncode != 0:
            answers.append(last)
    return answers


def compare(metadata: dict[str, Any]) -> None:
    """Our caches and llama.cpp's are equal for all of SETTINGS, and both refuse the same."""
    cases = [
        {"metadata": metadata, "settings": {key: getattr(one, key) for key in one.__struct_fields__}}
        for one in SETTINGS
    ]
    for settings, answer in zip(SETTINGS, ask(cases), strict=True):
        cache = kv_cache(metadata, settings)
        if cache.rough is not None:
            assert cache.rough.startswith("llama.cpp refuses")
            assert "llama_init_from_model: " in answer["error"], settings
            continue
        assert "error" not in answer, answer["error"]
        # llama.cpp prints two decimals a buffer.
        attention = (cache.attention_bytes + cache.window_bytes + cache.indexer_bytes) / MIB
        assert answer["kv"] == pytest.approx(attention, abs=0.03), settings
        assert answer["state"] == pytest.approx(cache.recurrent_bytes / MIB, abs=0.01), settings


@pytest.mark.parametrize("name", sorted(exact_architectures()))
def test_caches_of_every_architecture(name: str):
    compare(made_up(name))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (
            "deepseek2",
            {"attention.key_length_mla": None, "attention.value_length_mla": None, "attention.head_count_kv": 4},
        ),
        ("exaone4", {"block_count": 8}),
        ("glm-dsa", {"attention.indexer.types": (1, 0, 0, 1, 0, 0, 0, 1)}),
        ("glm-dsa", {"context_length": 1_048_576, "block_count": 13}),
        ("gpt-oss", {"attention.sliding_window_pattern": 4}),
        ("gpt-oss", {"attention.sliding_window_pattern": (True, True, False, False) * 2}),
        ("llama4", {"attention.sliding_window": 0}),
        ("gemma3", {"attention.sliding_window": None}),
        ("smallthinker", {"attention.sliding_window": None}),
        ("qwen3moe", {"attention.key_length": 128, "attention.value_length": 96}),
        ("qwen3moe", {"attention.head_count_kv": None}),
        ("qwen3next", {"attention.recurrent_layers": (True, True, False, True) * 2}),
        ("qwen3next", {"full_attention_interval": 2}),
        ("step35", {"attention.key_length_swa": 32, "attention.value_length_swa": 32}),
        ("nemotron_h_moe", {"feed_forward_length": (0, 0, 512, 512, 0, 0, 512, 0)}),
    ],
)
def test_variants(name: str, keys: dict[str, Any]):
    metadata = made_up(name) | {f"{name}.{key}": value for key, value in keys.items()}
    compare({key: value for key, value in metadata.items() if value is not None})
