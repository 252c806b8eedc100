from __future__ import annotations

import pytest
from fakes.model_stub import stub_header

from moetuned.decide.compute_buffer import MIB, compute_buffer, process_overhead
from moetuned.decide.weights import weights
from moetuned.gguf.experts import expert_map
from moetuned.gguf.kv_cache import KvSettings


@pytest.mark.parametrize(
    ("name", "context", "ubatch", "mebibytes"),
    [
        # As llama-fit-params of b11434 allocated them (tests/bench/test_bench_compute_buffers.py).
        ("qwen3moe-30b", 4096, 512, 320),
        ("qwen3moe-30b", 131_072, 2048, 1779),
        ("qwen3moe-235b", 32_768, 512, 376),
        ("qwen3moe-235b", 131_072, 2048, 1859),
        ("mixtral-8x7b", 4096, 512, 212),
        ("mixtral-8x7b", 131_072, 2048, 1344),
    ],
)
def test_the_range_holds_what_llama_cpp_allocates(name: str, context: int, ubatch: int, mebibytes: int):
    header = stub_header(name)
    sizes = weights((header,), expert_map((header,), (header.promised_bytes,)))
    found = compute_buffer(header.metadata, sizes, KvSettings(context, ubatch_tokens=ubatch))
    assert found.low_bytes <= mebibytes * MIB <= found.high_bytes
    assert found.high_bytes < 2 * mebibytes * MIB


def test_page_tables_grow_with_what_is_mapped():
    assert process_overhead(512 * MIB).low_bytes - process_overhead(0).low_bytes == MIB
