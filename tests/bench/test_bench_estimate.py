"""Time and memory of `moetunectl estimate` on a sparse model of 430 GB in seven parts, and on a small one: they do not grow with the size."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.gguf_bytes import TensorSpec, gguf_bytes
from fakes.model_metadata import MODELS
from measuring import Figure, middle

from moetuned.gguf.header import Header, parse_header

pytestmark = pytest.mark.bench
PARTS, VOCABULARY, LARGEST_SECONDS = 7, 151_552, 0.5
Q6_K, Q8_0 = 14, 8


def tensors(layers: int) -> list[TensorSpec]:
    """As GLM-4.6 has them, nearly: 160 experts a layer, a vocabulary of 152 thousand."""
    specs = [TensorSpec(name, (5120, VOCABULARY), Q6_K) for name in ("token_embd.weight", "output.weight")]
    for layer in range(layers):
        block = f"blk.{layer}."
        specs += [
            TensorSpec(block + "attn_q.weight", (5120, 12288), Q6_K),
            TensorSpec(block + "attn_output.weight", (12288, 5120), Q6_K),
            TensorSpec(block + "ffn_gate_inp.weight", (5120, 160)),
            *(TensorSpec(block + f"ffn_{one}_exps.weight", (5120, 1792, 160), Q8_0) for one in ("gate", "up")),
            TensorSpec(block + "ffn_down_exps.weight", (1792, 5120, 160), Q8_0),
        ]
    return specs


def write(directory: Path, layers: int, parts: int) -> Path:
    """Sparse files; the first has a real vocabulary. The path of the last."""
    metadata = MODELS["glm4moe"] | {
        "glm4moe.block_count": layers + 1, "glm4moe.expert_count": 160, "glm4moe.expert_used_count": 8,
        "glm4moe.expert_feed_forward_length": 1792, "glm4moe.context_length": 131_072,
        "tokenizer.ggml.tokens": [f"token{number}" for number in range(VOCABULARY)],
        "tokenizer.ggml.merges": [f"a{number} b{number}" for number in range(VOCABULARY)],
    }  # fmt: skip
    specs = tensors(layers)
    per_part = -(-len(specs) // parts)
    path = directory
    for part in range(parts):
        split = {"split.no": part, "split.count": parts, "split.tensors.count": len(specs)} if parts > 1 else {}
        raw = gguf_bytes(
            (metadata if part == 0 else {}) | split, specs[part * per_part : (part + 1) * per_part], with_data=False
        )
        header = parse_header(raw)
        assert isinstance(header, Header)
        path = directory / (f"glm-{part + 1:05}-of-{parts:05}.gguf" if parts > 1 else "glm.gguf")
        with path.open("wb") as file:
            file.write(raw)
            file.truncate(header.promised_bytes)
    return path


ASK = """\
import sys
from moetuned.cli.main import run
code = run(["estimate", sys.argv[1], "--ram", "64G", "--json"])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")), file=sys.stderr)
sys.exit(code)
"""


def run(path: Path) -> tuple[float, int]:
    """Seconds and peak memory of the whole command."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", ASK, str(path)], capture_output=True, text=True, check=True)
    return time.monotonic() - began, int(done.stderr) << 10


def test_estimate_of_a_large_model(tmp_path: Path, figure: Figure) -> None:
    measured = {}
    for name, layers, parts in (("a small model", 8, 1), ("a large model in 7 parts", 92, PARTS)):
        directory = tmp_path / str(parts)
        directory.mkdir()
        path = write(directory, layers, parts)
        size = sum(each.stat().st_size for each in directory.iterdir())
        runs = [run(path) for _ in range(7)]
        measured[name] = middle(seconds for seconds, _ in runs)
        figure(f"estimate, {name}, size", size / 1e9, "GB")
        figure(f"estimate, {name}, time", measured[name], "s")
        figure(f"estimate, {name}, peak memory", max(memory for _, memory in runs) / (1 << 20), "MiB")
    assert measured["a large model in 7 parts"] < LARGEST_SECONDS
