"""Connections to a server in this process, and those of a made-up /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moetuned.host import open_connections as module
from moetuned.host.open_connections import open_connections

ADDRESSES = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
TALK = """
import socket, sys
one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
sys.stdin.readline()
one.close()
"""
HALF = TALK.replace('print("connected"', 'one.shutdown(socket.SHUT_WR)\nprint("connected"')


@pytest.fixture(name="server", params=["127.0.0.1", "::"])
def listening(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        server = socket.socket(family)
        server.bind((request.param, 0))
    except OSError as error:
        pytest.skip(f"no such address here: {error}")
    with server:
        server.listen()
        yield server


def test_other_processes_count_and_this_one_does_not(server: socket.socket) -> None:
    pid, port = os.getpid(), server.getsockname()[1]
    assert open_connections(pid, port) == 0
    with socket.create_connection(("127.0.0.1", port)):
        assert open_connections(pid, port) == 0, "our own"
        with subprocess.Popen(
            [sys.executable, "-c", TALK, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdout.readline()
            assert open_connections(pid, port) == 1, "also where it is not accepted yet"
            accepted = [server.accept()[0] for _ in range(2)]
            assert open_connections(pid, port) == 1
            other.communicate("\n")
        assert open_connections(pid, port) == 0, "it was closed by the other side"
        for one in accepted:
            one.close()


def test_a_client_that_has_sent_all_and_waits_counts_until_it_is_gone(server: socket.socket) -> None:
    pid, port = os.getpid(), server.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-c", HALF, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        accepted = server.accept()[0]
        assert accepted.recv(1) == b"", "it has sent all"
        assert open_connections(pid, port) == 1
        other.communicate("\n")
    assert open_connections(pid, port) == 0
    accepted.close()


def test_whether_a_client_on_another_machine_waits_is_not_seen_so_it_may(tmp_path: Path) -> None:
    assert (
        open_connections(7, 8080, tree(tmp_path, LISTENS, CLIENT.replace(" 01 ", " 08 "), network="net:[1]", own=None))
        == 1
    )


def test_what_the_server_has_finished_is_no_request(tmp_path: Path) -> None:
    assert (
        open_connections(7, 8080, tree(tmp_path, LISTENS, CLIENT.replace(" 01 ", " 05 "), network="net:[1]", own=None))
        == 0
    )


def test_where_nobody_listens_it_is_not_known() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert open_connections(os.getpid(), unused.getsockname()[1]) is None


LISTENS = "0: 00000000:1F90 00000000:0000 0A 0:0 0:0 0 0 0 5"
CLIENT = "1: 050011AC:1F90 010011AC:D2A4 01 0:0 0:0 0 0 0 6"
OTHER = "2: 050011AC:1F90 010011AC:D2A5 01 0:0 0:0 0 0 0 7"
OURS = "0: 010011AC:D2A4 050011AC:1F90 01 0:0 0:0 0 0 0 9"


def tree(root: Path, *lines: str, network: str = "net:[2]", own: str | None = OURS) -> str:
    for name, text in (("7", "\n".join(lines)), ("self", own)):
        for part in ("net", "ns", "fd"):
            (root / name / part).mkdir(parents=True)
        if text is not None:
            (root / name / "net" / "tcp").write_text(f"sl local_address\n{text}\n")
    (root / "7" / "ns" / "net").symlink_to(network)
    (root / "self" / "ns" / "net").symlink_to("net:[1]")
    (root / "self" / "fd" / "3").symlink_to("socket:[9]")
    (root / "self" / "fd" / "4").symlink_to("/dev/null")
    return str(root)


OURS_THROUGH_NAT = "0: 0100007F:D2A4 0100007F:1F90 01 0:0 0:0 0 0 0 9"
THEIRS_THROUGH_NAT = "1: 0100007F:D2A5 0100007F:1F90 01 0:0 0:0 0 0 0 10"


def test_from_another_network_our_own_come_with_another_address(tmp_path: Path) -> None:
    ours = f"{OURS_THROUGH_NAT}\n{THEIRS_THROUGH_NAT}"
    assert open_connections(7, 8080, tree(tmp_path, LISTENS, CLIENT, OTHER, own=ours)) == 1


def test_only_our_own_is_nobody(tmp_path: Path) -> None:
    assert open_connections(7, 8080, tree(tmp_path, LISTENS, OTHER, own=OURS_THROUGH_NAT)) == 0


def test_from_another_network_our_own_are_not_counted(tmp_path: Path) -> None:
    assert open_connections(7, 8080, tree(tmp_path, LISTENS, CLIENT, OTHER)) == 1


def test_in_the_same_network_one_table_tells(tmp_path: Path) -> None:
    proc = tree(tmp_path, LISTENS, CLIENT, OTHER, OURS, network="net:[1]", own=None)
    assert open_connections(7, 8080, proc) == 1


def test_one_that_is_left_counts_also_where_the_port_is_closed(tmp_path: Path) -> None:
    assert open_connections(7, 8080, tree(tmp_path, CLIENT, OTHER)) == 1


def test_what_cannot_be_read_or_is_too_long_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = tree(tmp_path, LISTENS, CLIENT)
    assert open_connections(8, 8080, proc) is None
    assert open_connections(7, 8081, proc) is None
    monkeypatch.setattr(module, "TABLE_LIMIT_BYTES", 80)
    assert open_connections(7, 8080, proc) is None
