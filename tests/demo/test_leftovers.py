"""What a killed demo left is found by the pid in its name, and only that is removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.demo import leftovers

HIGHEST_PID = 4194303


@pytest.fixture
def gone() -> int:
    """A pid that no process has."""
    return next(pid for pid in range(HIGHEST_PID, 1, -1) if not os.path.exists(f"/proc/{pid}"))


def test_a_dead_demos_directory_is_removed_with_all_in_it(tmp_path: Path, gone: int) -> None:
    left = tmp_path / f"moetuned-demo-{gone}-abc"
    (left / "hooks.d").mkdir(parents=True)
    (left / "model.gguf").write_bytes(b"GGUF")
    assert leftovers.take_back(str(tmp_path), None) == [str(left)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["moetuned-demo-{alive}-abc", "moetuned-demo-abc", "moetuned-demo-", "other-{gone}-a"])
def test_what_may_be_somebody_elses_is_let_alone(tmp_path: Path, gone: int, name: str) -> None:
    (tmp_path / name.format(alive=os.getppid(), gone=gone)).mkdir()
    assert leftovers.take_back(str(tmp_path), None) == []
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_of_that_name_is_not_followed(tmp_path: Path, gone: int) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / f"moetuned-demo-{gone}-abc").symlink_to(kept)
    assert leftovers.take_back(str(tmp_path), None) == []
    assert kept.is_dir()


def test_a_directory_of_another_user_is_let_alone(tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"moetuned-demo-{gone}-abc").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert leftovers.take_back(str(tmp_path), None) == []


def test_one_demo_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_LOCK", f"\0moetuned-demo-test-{os.getpid()}")
    with leftovers.alone(), pytest.raises(leftovers.Busy, match="another demo runs"), leftovers.alone():
        pass
    with leftovers.alone():
        pass
