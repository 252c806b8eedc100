from __future__ import annotations

from pathlib import Path

import pytest

from moetuned.simulator.make_model import main as make_model


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Mixture-of-Experts model of 40 MiB; its KV cache costs 9216 bytes a token."""
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    assert make_model([str(path), "--size", "40M"]) == 0
    return path


@pytest.fixture(autouse=True)
def nothing_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon in the test's own process starts no processes for its self-test; tests/daemon/test_self_test.py has it do so."""
    monkeypatch.setattr("moetuned.daemon.self_test.rehearsed", lambda _facts: ())
