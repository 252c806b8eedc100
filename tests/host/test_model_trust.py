from __future__ import annotations

import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from moetuned.host import model_trust
from moetuned.host.model_trust import changeable_by_others, stranger_of, trusted_users

ME = frozenset({0, os.geteuid()})
OTHER = 65533
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "models/glm.gguf"
    path.parent.mkdir(mode=0o755)
    path.touch(0o644)
    return path


def test_what_is_ones_own_is_trusted(model: Path) -> None:
    assert changeable_by_others(str(model), ME) is None


@pytest.mark.parametrize(("which", "mode"), [("file", 0o646), ("directory", 0o757)])
def test_what_everybody_can_write(model: Path, which: str, mode: int) -> None:
    path = model if which == "file" else model.parent
    path.chmod(mode)
    assert changeable_by_others(str(model), ME) == f"{path} may be written by others"


def test_names_in_a_sticky_directory_are_of_their_owners(model: Path) -> None:
    model.parent.chmod(0o1777)
    assert changeable_by_others(str(model), ME) is None


@pytest.mark.kernel
@needs_root
@pytest.mark.parametrize(
    "which", ["file", "directory", "link", "directory of a link", "directory that a link leads over"]
)
def test_what_somebody_else_owns(tmp_path: Path, model: Path, which: str) -> None:
    """/first/glm.gguf -> /second/link -> models/glm.gguf, where /second is reached by a link of a directory."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (tmp_path / "way").symlink_to("second")
    (second / "link").symlink_to("../models/glm.gguf")
    (first / "glm.gguf").symlink_to(tmp_path / "way/link")
    named = first / "glm.gguf"
    assert changeable_by_others(str(named), ME) is None
    path = {
        "file": model,
        "directory": model.parent,
        "link": named,
        "directory of a link": second,
        "directory that a link leads over": tmp_path / "way",
    }[which]
    os.chown(path, OTHER, -1, follow_symlinks=False)
    assert changeable_by_others(str(named), ME) == f"{path} belongs to user {OTHER}"
    assert changeable_by_others(str(named), {*ME, OTHER}) is None


@pytest.mark.kernel
@needs_root
def test_a_group_that_only_its_owner_is_in(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(model, OTHER, OTHER)
    model.chmod(0o664)
    users = {"ann": SimpleNamespace(pw_uid=OTHER, pw_gid=OTHER)}
    groups = {OTHER: SimpleNamespace(gr_name="ann", gr_mem=[])}
    monkeypatch.setattr(model_trust.pwd, "getpwnam", users.__getitem__)
    monkeypatch.setattr(model_trust.grp, "getgrgid", groups.__getitem__)
    assert changeable_by_others(str(model), {*ME, OTHER}) is None
    groups[OTHER].gr_mem = ["bob"]
    assert changeable_by_others(str(model), {*ME, OTHER}) == f"{model} may be written by others"
    groups.clear()
    assert changeable_by_others(str(model), {*ME, OTHER}) == f"{model} may be written by others"


def test_links_in_a_ring_and_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "Too many levels" in (changeable_by_others(str(tmp_path / "a"), ME) or "")
    assert "No such file" in (changeable_by_others(str(tmp_path / "gone"), ME) or "")


def test_who_called_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    nobody = pwd.getpwnam("nobody").pw_uid
    assert trusted_users({"SUDO_USER": "nobody"}) == {0, nobody}
    assert trusted_users({"SUDO_USER": "no such user"}) == {0}
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert trusted_users({"SUDO_USER": "nobody"}) == {0, 1234}


@pytest.mark.parametrize(
    ("uids", "stranger"),
    [
        ("0\t0", None),
        ("1234\t1234", None),
        ("999\t999", None),
        ("61200\t61200", None),
        ("1999\t0", "user 1999"),
        ("0\t1999", "user 1999"),
    ],
)
def test_whose_a_process_is(tmp_path: Path, uids: str, stranger: str | None) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/status").write_text(f"Name:\tUid: 5 5\nUmask:\t0022\nUid:\t{uids}\t0\t0\n")
    assert stranger_of(7, {0, 1234}, str(tmp_path)) == stranger
    assert stranger_of(8, {0}, str(tmp_path)) is None
