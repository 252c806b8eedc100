from __future__ import annotations

from pathlib import Path

from moetuned.api.socket_path import DEFAULT_SOCKET, find_socket, user_directory


def test_the_machines_socket_unless_told_otherwise(tmp_path: Path) -> None:
    assert find_socket({}) == DEFAULT_SOCKET
    assert find_socket({"XDG_RUNTIME_DIR": str(tmp_path)}) == DEFAULT_SOCKET
    assert find_socket({"MOETUNED_RUNTIME_DIR": str(tmp_path)}) == str(tmp_path / "api.sock")


def test_a_users_own_daemon_is_found_only_where_the_machine_has_none(tmp_path: Path) -> None:
    machine = tmp_path / "machine.sock"
    own = tmp_path / "moetuned" / "api.sock"
    own.parent.mkdir()
    own.touch()
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert user_directory(environ) == str(own.parent)
    assert find_socket(environ, str(machine)) == str(own)
    machine.touch()
    assert find_socket(environ, str(machine)) == str(machine)
