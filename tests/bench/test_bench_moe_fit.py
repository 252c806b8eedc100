"""KV cache by moe-fit (PyPI) and by moetuned on the same headers. MOE_FIT_PYTHON names an interpreter that has moe-fit 0.1.0."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from fakes.gguf_bytes import TensorSpec, gguf_bytes
from fakes.model_metadata import MODELS
from measuring import Figure

from moetuned.gguf.kv_cache import KvSettings, kv_cache

pytestmark = pytest.mark.bench
CONTEXT = 32_768
MIB = 1 << 20
LLAMA_CPP_MIB = {"qwen3moe-30b": 3072, "gpt-oss-120b": 1179, "deepseek2": 2196, "qwen3next": 843, "mixtral-8x7b": 4096}
"""As llama-fit-params of b11434 printed them."""
DIMENSIONS = {"rope.dimension_count": 64, "attention.kv_lora_rank": 512}
"""Of the models with compressed attention; moe-fit looks there."""
ASK = (
    "import json, sys; from moefit import gguf, plan\n"
    "print(json.dumps([plan.kv_cache_bytes(gguf.read(path), int(sys.argv[1]), 16) for path in sys.argv[2:]]))"
)


def test_kv_cache_beside_moe_fit(tmp_path: Path, figure: Figure) -> None:
    python = os.environ.get("MOE_FIT_PYTHON")
    if python is None:
        pytest.skip("needs moe-fit in an environment of its own; name its interpreter in MOE_FIT_PYTHON")
    paths = []
    for name, metadata in MODELS.items():
        prefix = metadata["general.architecture"]
        more = (
            {f"{prefix}.{key}": value for key, value in DIMENSIONS.items()}
            if f"{prefix}.attention.key_length_mla" in metadata
            else {}
        )
        keys = {key: list(value) if isinstance(value, tuple) else value for key, value in (metadata | more).items()}
        paths.append(tmp_path / f"{name}.gguf")
        paths[-1].write_bytes(gguf_bytes(keys, [TensorSpec("output_norm.weight", (64,))]))
    done = subprocess.run(
        [python, "-c", ASK, str(CONTEXT), *map(str, paths)], capture_output=True, text=True, check=True
    )
    theirs = dict(zip(MODELS, json.loads(done.stdout), strict=True))
    for name, metadata in MODELS.items():
        ours = kv_cache(metadata, KvSettings(CONTEXT)).total_bytes
        figure(f"{name}, {CONTEXT} tokens, f16: moe-fit", theirs[name] / MIB, "MiB")
        figure(f"{name}, {CONTEXT} tokens, f16: moetuned", ours / MIB, "MiB")
        if name in LLAMA_CPP_MIB:
            figure(f"{name}, {CONTEXT} tokens, f16: llama.cpp", LLAMA_CPP_MIB[name], "MiB")
            assert ours // MIB == LLAMA_CPP_MIB[name]
