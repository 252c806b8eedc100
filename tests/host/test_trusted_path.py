from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.trusted_path import distrust


def test_what_only_root_can_write_is_trusted(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.touch(0o755)
    assert distrust(str(path)) is None


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_what_others_can_write_is_not(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "program"
    path.touch()
    path.chmod(mode)
    assert distrust(str(path)) == f"{path} can be written by others than root; mend it with: chmod go-w {path}"


def test_the_sticky_bit_helps_above_only(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    path = above / "program"
    path.touch(0o755)
    above.chmod(0o1777)
    assert distrust(str(path)) is None
    assert distrust(str(above)) is not None
    above.chmod(0o777)
    assert f"{above} can be written" in (distrust(str(path)) or "")


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_somebody_else_is_not(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.touch(0o755)
    os.chown(path, 65534, 65534)
    assert "belongs to user 65534" in (distrust(str(path)) or "")


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        distrust(str(tmp_path / "absent"))


def test_names_are_quoted_in_remedies(tmp_path: Path) -> None:
    directory = tmp_path / "a b;c"
    directory.mkdir()
    directory.chmod(0o777)
    text = distrust(str(directory))
    assert text is not None
    assert f"chmod go-w '{directory}'" in text
