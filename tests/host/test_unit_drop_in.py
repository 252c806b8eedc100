"""Drop-ins on the disk: written, taken away, and refused where somebody else has a hand in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.unit_drop_in import read_drop_in, remove_drop_in, write_drop_in

MADE = "[Service]\n[X-Moetuned]\nmade_directory=yes\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "llama.service.d" / "zz-moetuned.conf"


def test_there_and_gone_again_with_its_directory(path: Path) -> None:
    assert read_drop_in(str(path)) is None
    write_drop_in(str(path), MADE)
    assert read_drop_in(str(path)) == MADE
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o644, 0o755)
    remove_drop_in(str(path))
    assert not path.parent.exists()
    remove_drop_in(str(path))


def test_a_directory_that_was_there_or_holds_something_else_stays(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    write_drop_in(str(path), "[Service]\n")
    remove_drop_in(str(path))
    assert path.parent.is_dir()
    write_drop_in(str(path), MADE)
    (path.parent / "override.conf").write_text("")
    remove_drop_in(str(path))
    assert [each.name for each in path.parent.iterdir()] == ["override.conf"]


def test_links_are_not_followed(path: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("x")
    path.parent.mkdir(mode=0o755)
    path.symlink_to(theirs)
    for act in (
        lambda: read_drop_in(str(path)),
        lambda: write_drop_in(str(path), "y"),
        lambda: remove_drop_in(str(path)),
    ):
        with pytest.raises(OSError, match="no plain file of root's alone"):
            act()
    assert theirs.read_text() == "x"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "other.service.d").symlink_to(elsewhere)
    with pytest.raises(OSError, match="no directory of root's alone"):
        write_drop_in(str(tmp_path / "other.service.d/zz-moetuned.conf"), "y")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_may_write_in_is_refused(path: Path, mode: int) -> None:
    path.parent.mkdir()
    path.parent.chmod(mode)
    with pytest.raises(OSError, match="of root's alone"):
        write_drop_in(str(path), MADE)


def test_a_failure_leaves_no_directory_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_drop_in(str(path), MADE)
    assert not path.parent.exists()
