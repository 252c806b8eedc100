"""moetunectl backend list."""

from __future__ import annotations

import msgspec
import pytest
from backend_scenes import FakeDaemon

from moetuned.cli import main
from moetuned.schema.snapshot import BackendView


def test_all_of_them(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["backend", "list"]) == 0
    assert "llama-server-50411" in capsys.readouterr().out
    assert main.run(["backend", "list", "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out, type=list[BackendView])
    assert [one.name for one in told] == ["glm", "llama-server-50411"]
    assert daemon.posted == []
