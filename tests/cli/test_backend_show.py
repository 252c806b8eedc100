"""moetunectl backend show."""

from __future__ import annotations

import msgspec
import pytest
from backend_scenes import GLM, FakeDaemon

from moetuned.cli import main
from moetuned.schema.snapshot import BackendView


def test_one_of_them(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["backend", "show", "glm"]) == 0
    assert "run by" in capsys.readouterr().out
    assert main.run(["backend", "show", "glm", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=BackendView).launch == GLM.launch
    assert daemon.posted == []
