"""Whose socket it is that listens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from moetuned.host import listening
from moetuned.host.listening import is_taken, listens, who_listens

TABLE = "  sl  local\n   0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 31415 1\n"


def tree(root: Path, *links: str) -> str:
    (root / "7/net").mkdir(parents=True)
    (root / "7/net/tcp").write_text(TABLE)
    (root / "7/fd").mkdir()
    for number, link in enumerate(links):
        (root / f"7/fd/{number}").symlink_to(link)
    return str(root)


def test_its_own_socket_and_another_ones(tmp_path: Path) -> None:
    assert listens(7, 8080, tree(tmp_path / "own", "/dev/null", "socket:[31415]")) is True
    assert listens(7, 8081, tree(tmp_path / "port", "socket:[31415]")) is False
    assert listens(7, 8080, tree(tmp_path / "other", "socket:[31416]", "pipe:[31415]")) is False


def test_what_cannot_be_looked_at_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listens(8, 8080, tree(tmp_path / "gone")) is None
    monkeypatch.setattr(listening, "TABLE_LIMIT_BYTES", 10)
    assert listens(7, 8080, tree(tmp_path / "cut", "socket:[5]")) is None


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_this_process_and_its_child(family: socket.AddressFamily) -> None:
    with socket.socket(family) as server:
        try:
            server.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        except OSError:
            pytest.skip("no such address here")
        port = server.getsockname()[1]
        assert listens(os.getpid(), port) is False, "bound and not listening"
        server.listen()
        assert listens(os.getpid(), port) is True
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            assert listens(child.pid, port) is False
        finally:
            child.communicate(b"\n")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_is_taken_while_somebody_listens(host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        try:
            server.bind((host, 0))
        except OSError:
            pytest.skip("no such address here")
        port = server.getsockname()[1]
        server.listen()
        assert is_taken(host, port)
        who = who_listens(port)
        assert who is not None
        assert who.pid == os.getpid()
    assert not is_taken(host, port)


def test_one_that_listens_everywhere_takes_it_too() -> None:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        port = server.getsockname()[1]
        server.listen()
        assert is_taken("127.0.0.1", port)


def test_connections_of_one_that_has_ended_do_not_take_it() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # This side waits (TIME_WAIT) after the other has closed too.
        client.close()
    assert not is_taken("127.0.0.1", port)


def test_who_listens_is_found_in_the_tables_only(tmp_path: Path) -> None:
    root = tmp_path / "proc"
    tree(root, "socket:[31415]")
    (root / "7/stat").write_text("7 (nginx) S 1 7 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 55 0 0")
    (root / "self").symlink_to("7")
    (root / "8").mkdir()
    who = who_listens(8080, str(tmp_path))
    assert who is not None
    assert (who.pid, who.name) == (7, "nginx")
    assert who_listens(8081, str(tmp_path)) is None
