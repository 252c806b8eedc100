from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fakes.model_stub import write_stub

from moetuned.decide.ledger import settings
from moetuned.gguf.kv_cache import kv_cache
from moetuned.host.fit_params import ask_exact
from moetuned.host.model_outline import read_outline
from moetuned.schema.estimate import LaunchPlan

PLAN = LaunchPlan(context_length=8192, cache_type_k="q8_0", cache_type_v="q8_0")
MIB = 1 << 20


def program(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_a_model_that_is_not_here_is_shown_as_a_sparse_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    outline = read_outline(str(write_stub(tmp_path, "qwen3moe-30b", parts=2)[0]))
    seen = tmp_path / "seen"
    fake = program(tmp_path / "fit", f'ls -ls $(dirname "$2") > {seen}; echo "$@" >> {seen}; echo "Host 2 16 32"')
    found = ask_exact(fake, outline, PLAN)
    assert (found.model_bytes, found.context_bytes, found.compute_bytes) == (2 * MIB, 16 * MIB, 32 * MIB)
    text = seen.read_text()
    assert all(str(size) in text for size in outline.part_bytes)
    assert "model-00002-of-00002.gguf" in text
    assert "-c 8192 -np 1" in text
    assert "-ctk q8_0" in text
    assert not list(tmp_path.glob("moetuned-*"))


def test_why_it_said_nothing(tmp_path: Path):
    outline = read_outline(str(write_stub(tmp_path, "qwen3moe-30b")[0]))
    assert "there is no llama-fit-params" in (ask_exact(None, outline, PLAN).unknown or "")
    fake = program(tmp_path / "fit", "echo failed to load model")
    assert "it ended with: failed to load model" in (ask_exact(fake, outline, PLAN).unknown or "")
    fake = program(tmp_path / "silent", "exit 0")
    assert (ask_exact(fake, outline, PLAN).unknown or "").endswith("gave no figures and said nothing")


@pytest.mark.backend
def test_the_real_one_agrees_on_the_cache(tmp_path: Path):
    real = os.environ.get("LLAMA_FIT_PARAMS") or shutil.which("llama-fit-params")
    if real is None:
        pytest.skip("needs llama-fit-params, on PATH or in LLAMA_FIT_PARAMS")
    outline = read_outline(str(write_stub(tmp_path, "qwen3moe-30b")[0]))
    found = ask_exact(real, outline, PLAN)
    assert found.unknown is None
    assert found.context_bytes == kv_cache(outline.headers[0].metadata, settings(PLAN)).total_bytes // MIB * MIB
