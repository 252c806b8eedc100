"""The stated range of compute buffers beside what llama-fit-params allocates, for stubs of published models.

LLAMA_FIT_PARAMS names the program, else the one on PATH is asked.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fakes.model_stub import SHAPES, write_stub
from measuring import Figure

from moetuned.decide.compute_buffer import compute_buffer
from moetuned.decide.ledger import settings
from moetuned.decide.weights import weights
from moetuned.gguf.kv_cache import kv_cache
from moetuned.host.fit_params import ask_exact
from moetuned.host.model_outline import read_outline
from moetuned.schema.estimate import LaunchPlan

pytestmark = pytest.mark.bench
MIB = 1 << 20
PLANS = [
    LaunchPlan(context_length=context, ubatch_tokens=ubatch)
    for context, ubatch in ((4096, 512), (32_768, 512), (131_072, 512), (32_768, 2048), (131_072, 2048))
]


@pytest.mark.parametrize("name", SHAPES)
def test_compute_buffers(name: str, tmp_path: Path, figure: Figure) -> None:
    program = os.environ.get("LLAMA_FIT_PARAMS") or shutil.which("llama-fit-params")
    if program is None:
        pytest.skip("needs llama-fit-params, on PATH or in LLAMA_FIT_PARAMS")
    outline = read_outline(str(write_stub(tmp_path, name)[0]))
    metadata, sizes = outline.headers[0].metadata, weights(outline.headers, outline.experts)
    for plan in PLANS:
        exact = ask_exact(program, outline, plan)
        assert exact.unknown is None, exact.unknown
        ours, cache = compute_buffer(metadata, sizes, settings(plan)), kv_cache(metadata, settings(plan))
        about = f"{name}, {plan.context_length} tokens, micro-batch {plan.ubatch_tokens}"
        figure(f"{about}: compute buffers", exact.compute_bytes / MIB, "MiB")
        figure(f"{about}: stated from", ours.low_bytes / MIB, "MiB")
        figure(f"{about}: stated to", ours.high_bytes / MIB, "MiB")
        assert exact.context_bytes // MIB == cache.total_bytes // MIB
        assert ours.low_bytes <= exact.compute_bytes <= ours.high_bytes
