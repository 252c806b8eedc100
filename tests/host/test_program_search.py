from __future__ import annotations

from pathlib import Path

import pytest

from moetuned.host.program_search import find_program


def test_only_system_directories_are_looked_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "moetuned-test-program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("moetuned-test-program") is None
    assert find_program("sh") in ("/usr/bin/sh", "/bin/sh")
