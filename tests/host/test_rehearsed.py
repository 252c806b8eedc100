from __future__ import annotations

import sys
from pathlib import Path

import pytest

from moetuned.host.rehearsed import rehearsed
from moetuned.schema.capability import Answer, RehearsalFacts, SettingFile


def test_a_process_of_its_own_answers(tmp_path: Path) -> None:
    here, gone = tmp_path / "here", tmp_path / "gone"
    here.write_text("7")
    settings = (SettingFile("a", str(here)), SettingFile("b", str(gone)))
    found = {one.subject: one for one in rehearsed(RehearsalFacts(str(tmp_path), str(tmp_path), settings))}
    assert found[str(here)].answer is Answer.YES
    assert found[str(gone)].answer is Answer.UNKNOWN
    assert found[str(tmp_path)].answer is Answer.YES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


def test_one_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no module >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(OSError, match="ended with code 3: no module"):
        rehearsed(RehearsalFacts())
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(OSError, match="no process could be started"):
        rehearsed(RehearsalFacts())
