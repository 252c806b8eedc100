"""Who may not use the socket is told who may, and how to become one."""

from __future__ import annotations

import grp
import pwd
from pathlib import Path

import pytest

from moetuned.api.socket_access import who_may


@pytest.fixture
def socket_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "api.sock"
    path.touch()
    ada = pwd.struct_passwd(("ada", "x", 1000, 1000, "", "/home/ada", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: ada)
    return str(path)


def members(monkeypatch: pytest.MonkeyPatch, name: str, number: int, *names: str) -> None:
    monkeypatch.setattr(grp, "getgrgid", lambda _gid: grp.struct_group((name, "x", number, list(names))))


def test_a_member_to_be(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    members(monkeypatch, "moetuned", 990)
    assert who_may(socket_path).endswith("sudo usermod -aG moetuned ada")
    assert "group moetuned may" in who_may(socket_path)


def test_one_who_became_a_member_after_the_login(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    members(monkeypatch, "moetuned", 990, "ada")
    assert "log out and in again" in who_may(socket_path)
    assert "usermod" not in who_may(socket_path)


def test_only_root(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    members(monkeypatch, "root", 0)
    assert who_may(socket_path) == "only root may; run this with sudo."


def test_what_cannot_be_told(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "sudo" in who_may(socket_path + ".gone")

    def unknown(_number: int) -> None:
        raise KeyError

    monkeypatch.setattr(grp, "getgrgid", unknown)
    assert "sudo" in who_may(socket_path)
    members(monkeypatch, "moetuned", 990)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert who_may(socket_path).endswith("usermod -aG moetuned YOUR-NAME")
