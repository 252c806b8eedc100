"""Sparse GGUF files of the size and shape of published models: a whole header, no weights, some kilobytes on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes.gguf_bytes import TensorSpec, gguf_bytes
from fakes.model_metadata import MODELS

from moetuned.gguf.header import Header, parse_header

Q4_K, Q6_K = 12, 14

SHAPES: dict[str, dict[str, int]] = {
    "qwen3moe-30b": {"experts": 128, "used": 8, "forward": 768, "vocabulary": 151_936, "context": 262_144},
    "qwen3moe-235b": {"experts": 128, "used": 8, "forward": 1536, "vocabulary": 151_936, "context": 262_144},
    "mixtral-8x7b": {"experts": 8, "used": 2, "forward": 14_336, "vocabulary": 32_000, "context": 32_768},
}
"""What the metadata of `MODELS` does not say, from the published configs."""


def stub_metadata(name: str) -> dict[str, Any]:
    """Metadata with which llama.cpp loads the stub."""
    metadata, shape = dict(MODELS[name]), SHAPES[name]
    prefix = metadata["general.architecture"]
    head = metadata.get(f"{prefix}.attention.key_length", 128)
    return metadata | {
        "tokenizer.ggml.model": "no_vocab",
        f"{prefix}.vocab_size": shape["vocabulary"],
        f"{prefix}.context_length": shape["context"],
        f"{prefix}.feed_forward_length": shape["forward"] * 8 if prefix == "qwen3moe" else shape["forward"],
        f"{prefix}.expert_feed_forward_length": shape["forward"],
        f"{prefix}.expert_count": shape["experts"],
        f"{prefix}.expert_used_count": shape["used"],
        f"{prefix}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{prefix}.rope.dimension_count": head,
        f"{prefix}.rope.freq_base": 1e6,
    }


def stub_tensors(name: str) -> list[TensorSpec]:
    """All tensors, in file order."""
    metadata, shape = stub_metadata(name), SHAPES[name]
    prefix = metadata["general.architecture"]
    embedding, heads = metadata[f"{prefix}.embedding_length"], metadata[f"{prefix}.attention.head_count"]
    heads_kv, head = metadata[f"{prefix}.attention.head_count_kv"], metadata[f"{prefix}.rope.dimension_count"]
    forward, experts = shape["forward"], shape["experts"]
    specs = [
        TensorSpec("token_embd.weight", (embedding, shape["vocabulary"]), Q4_K),
        TensorSpec("output.weight", (embedding, shape["vocabulary"]), Q6_K),
        TensorSpec("output_norm.weight", (embedding,)),
    ]
    for layer in range(metadata[f"{prefix}.block_count"]):
        block = f"blk.{layer}."
        specs += [
            TensorSpec(block + "attn_norm.weight", (embedding,)),
            TensorSpec(block + "attn_q.weight", (embedding, heads * head), Q4_K),
            TensorSpec(block + "attn_k.weight", (embedding, heads_kv * head), Q4_K),
            TensorSpec(block + "attn_v.weight", (embedding, heads_kv * head), Q6_K),
            TensorSpec(block + "attn_output.weight", (heads * head, embedding), Q4_K),
            TensorSpec(block + "ffn_norm.weight", (embedding,)),
            TensorSpec(block + "ffn_gate_inp.weight", (embedding, experts)),
            TensorSpec(block + "ffn_gate_exps.weight", (embedding, forward, experts), Q4_K),
            TensorSpec(block + "ffn_up_exps.weight", (embedding, forward, experts), Q4_K),
            TensorSpec(block + "ffn_down_exps.weight", (forward, embedding, experts), Q6_K),
        ]
        if prefix == "qwen3moe":
            specs += [TensorSpec(block + f"attn_{one}_norm.weight", (head,)) for one in "qk"]
    return specs


def stub_header(name: str) -> Header:
    """The header alone."""
    found = parse_header(gguf_bytes(stub_metadata(name), stub_tensors(name), with_data=False))
    assert isinstance(found, Header)
    return found


def write_stub(directory: Path, name: str, parts: int = 1) -> tuple[Path, ...]:
    """The model as sparse files of its full size, in `parts` parts; paths in order."""
    tensors, metadata = stub_tensors(name), stub_metadata(name)
    per_part = -(-len(tensors) // parts)
    paths = []
    for part in range(parts):
        mine = tensors[part * per_part : (part + 1) * per_part]
        split = {"split.no": part, "split.count": parts, "split.tensors.count": len(tensors)} if parts > 1 else {}
        raw = gguf_bytes((metadata if part == 0 else {}) | split, mine, with_data=False)
        header = parse_header(raw)
        assert isinstance(header, Header)
        path = directory / (f"{name}-{part + 1:05}-of-{parts:05}.gguf" if parts > 1 else f"{name}.gguf")
        with path.open("wb") as file:
            file.write(raw)
            file.truncate(header.promised_bytes)
        paths.append(path)
    return tuple(paths)
