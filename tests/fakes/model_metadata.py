"""Metadata of public Mixture-of-Experts models, as far as the KV cache depends on it (from their published configs)."""

from __future__ import annotations

from typing import Any


def _model(
    name: str, layers: int, embedding: int, heads: int, heads_kv: int | tuple[int, ...], **more: Any
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "general.architecture": name,
        f"{name}.block_count": layers,
        f"{name}.embedding_length": embedding,
        f"{name}.attention.head_count": heads,
        f"{name}.attention.head_count_kv": heads_kv,
    }
    for key, value in more.items():
        metadata[f"{name}.{key.replace('__', '.')}"] = value
    return metadata


def _heads(size: int, value: int | None = None) -> dict[str, int]:
    return {"attention__key_length": size, "attention__value_length": size if value is None else value}


_MLA = _heads(576, 512) | {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
_DSA = _heads(576, 512) | {
    "attention__key_length_mla": 256,
    "attention__value_length_mla": 256,
    "attention__indexer__key_length": 128,
    "nextn_predict_layers": 1,
}

MODELS: dict[str, dict[str, Any]] = {
    "qwen3moe-30b": _model("qwen3moe", 48, 2048, 32, 4, **_heads(128)),
    "qwen3moe-235b": _model("qwen3moe", 94, 4096, 64, 4, **_heads(128)),
    "gpt-oss-120b": _model("gpt-oss", 36, 2880, 64, 8, **_heads(64), attention__sliding_window=128),
    "glm4moe-air": _model("glm4moe", 47, 4096, 96, 8, **_heads(128), nextn_predict_layers=1),
    "glm4moe": _model("glm4moe", 93, 5120, 96, 8, **_heads(128), nextn_predict_layers=1),
    "deepseek2": _model("deepseek2", 61, 7168, 128, 1, **_MLA),
    "glm-dsa-5.2": _model("glm-dsa", 79, 6144, 64, 1, **_DSA, context_length=1_048_576),
    "glm-dsa-5": _model("glm-dsa", 79, 6144, 64, 1, **_DSA, context_length=202_752),
    "mixtral-8x7b": _model("llama", 32, 4096, 32, 8),
    "qwen3next": _model(
        "qwen3next",
        48,
        2048,
        16,
        2,
        **_heads(256),
        ssm__conv_kernel=4,
        ssm__inner_size=4096,
        ssm__state_size=128,
        ssm__group_count=16,
        ssm__time_step_rank=32,
    ),
    "minimax-m2": _model("minimax-m2", 62, 3072, 48, 8, **_heads(128)),
    "llama4-scout": _model("llama4", 48, 5120, 40, 8, **_heads(128)),
    "ernie4_5-moe": _model("ernie4_5-moe", 54, 8192, 64, 8, **_heads(128)),
    "bailingmoe2": _model("bailingmoe2", 32, 4096, 32, 4, **_heads(128)),
    "dots1": _model("dots1", 62, 4096, 32, 32, **_heads(128)),
    "hunyuan-moe": _model("hunyuan-moe", 32, 4096, 32, 8, **_heads(128)),
    "lfm2moe": _model(
        "lfm2moe",
        24,
        2048,
        32,
        tuple(8 if layer in (2, 6, 10, 14, 18, 21) else 0 for layer in range(24)),
        shortconv__l_cache=3,
    ),
    "granitehybrid": _model(
        "granitehybrid",
        40,
        4096,
        32,
        tuple(8 if layer in (5, 15, 25, 35) else 0 for layer in range(40)),
        ssm__conv_kernel=4,
        ssm__inner_size=8192,
        ssm__state_size=128,
        ssm__group_count=1,
    ),
    "kimi-linear": _model(
        "kimi-linear",
        27,
        2304,
        32,
        tuple(1 if layer % 4 == 3 or layer == 26 else 0 for layer in range(27)),
        **_MLA,
        ssm__conv_kernel=4,
        kda__head_dim=128,
    ),
    "falcon-h1": _model(
        "falcon-h1",
        36,
        3072,
        12,
        2,
        **_heads(128),
        ssm__conv_kernel=4,
        ssm__inner_size=3072,
        ssm__state_size=256,
        ssm__group_count=1,
    ),
    "rwkv7": {
        "general.architecture": "rwkv7",
        "rwkv7.block_count": 32,
        "rwkv7.embedding_length": 4096,
        "rwkv7.wkv.head_size": 64,
    },
}
