"""A fake kernel and a root for the subcommands of `moetunectl tune`, a daemon for those of `moetunectl backend`."""

from __future__ import annotations

from pathlib import Path

import pytest
from backend_scenes import FOUND, GLM, FakeDaemon, snapshot
from fakes.fake_kernel import FakeKernel, usual_kernel

from moetuned.api.client import Client
from moetuned.cli import restart_progress, tune, tune_explain, tune_options, tune_rivals


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    """The usual kernel in place of the machine's."""
    fake = usual_kernel()
    for module in (tune, tune_explain, tune_options, tune_rivals):
        monkeypatch.setattr(module, "RealFS", lambda _root: fake)
    return fake


@pytest.fixture
def root(tmp_path: Path, kernel: FakeKernel) -> Path:
    """Where config and journal lie."""
    config = tmp_path / "etc/moetuned/moetuned.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("tuning: {profile: moe-offload, thp: madvise}\n")
    config.chmod(0o600)
    return tmp_path


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    """Knows two backends, and restarts well."""
    it = FakeDaemon()
    monkeypatch.setattr(Client, "status", lambda _self: snapshot(GLM, FOUND))
    monkeypatch.setattr(Client, "post", lambda _self, path, payload: it.post(path, payload))
    monkeypatch.setattr(
        restart_progress, "follow", lambda *_: restart_progress.Outcome(well=True, sentence="glm is healthy again")
    )
    return it
