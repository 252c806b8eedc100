"""moetunectl backend pause."""

from __future__ import annotations

import pytest
from backend_scenes import FakeDaemon

from moetuned.cli import main


def test_pause_says_what_it_means(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["backend", "pause", "glm"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "answers nothing" in out
    assert "memory stays (4.0 GiB" in out
    assert "moetunectl backend resume glm" in out
    assert daemon.posted == [{"backend": "glm", "do": "pause"}]
