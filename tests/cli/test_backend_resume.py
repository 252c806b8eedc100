"""moetunectl backend resume."""

from __future__ import annotations

import pytest
from backend_scenes import FakeDaemon

from moetuned.cli import main


def test_it_goes_on(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["backend", "resume", "glm"]) == 0
    assert capsys.readouterr().out == "glm goes on\n"
    assert daemon.posted == [{"backend": "glm", "do": "resume"}]
