"""Listening sockets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.net_tcp import (
    CLOSE_WAIT,
    ESTABLISHED,
    FIN_WAIT1,
    FIN_WAIT2,
    Connection,
    connections_at,
    listening_inodes,
    port_of,
)

CASES = Path(__file__).parent / "net_tcp"
FOUND = {
    "linux-6.18-tcp.txt": {31415},
    "linux-5.15-tcp6.txt": {5551, 5552},
    "cut-tcp.txt": {77},
    "none-tcp.txt": set(),
}


@pytest.mark.parametrize("path", sorted(CASES.iterdir()), ids=lambda path: path.name)
def test_cases(path: Path) -> None:
    assert listening_inodes(path.read_text(), 8080) == FOUND[path.name]
    assert listening_inodes(path.read_text(), 8081) == set()


@pytest.mark.parametrize("inode", ["0", "-5", "x", "9" * 21, "٣"])
def test_no_inode_is_none(inode: str) -> None:
    line = "0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 " + inode
    assert listening_inodes(line, 8080) == set()


@given(st.text() | st.lists(st.text(alphabet="0A:F19 \n")).map(" ".join), st.integers(-5, 70000))
def test_any_text_is_survived(text: str, port: int) -> None:
    assert all(inode > 0 for inode in listening_inodes(text, port))


CONNECTED = {
    "linux-6.18-tcp.txt": [Connection("0100007F:1F90", "0100007F:D2A4", 31416)],
    "linux-5.15-tcp6.txt": [Connection("0100007F:1F90", "0100007F:B3C2", 5553)],
    "cut-tcp.txt": [],
    "none-tcp.txt": [],
}


@pytest.mark.parametrize("path", sorted(CASES.iterdir()), ids=lambda path: path.name)
def test_connections(path: Path) -> None:
    assert list(connections_at(path.read_text(), 8080)) == CONNECTED[path.name]
    assert connections_at(path.read_text(), 8081) == ()


def line(state: str, local: str = "0100007F:1F90", inode: str = "5") -> str:
    return f"0: {local} 0100007F:D2A4 {state} 0:0 0:0 0 0 0 {inode}"


def test_both_ends_count_and_those_that_nobody_has_accepted_yet() -> None:
    text = "\n".join((line("01"), "1: 0100007F:D2A4 0100007F:1F90 01 0:0 0:0 0 0 0 6", line("01", inode="0")))
    assert [(one.inode, port_of(one.local) == 8080) for one in connections_at(text, 8080)] == [
        (5, True), (6, False), (0, True),
    ]  # fmt: skip


@pytest.mark.parametrize("state", ["02", "03", "06", "07", "09", "0A", "0B", "0C"])
def test_what_is_being_opened_or_closed_is_no_connection(state: str) -> None:
    assert connections_at(line(state), 8080) == ()


@pytest.mark.parametrize("state", [ESTABLISHED, CLOSE_WAIT, FIN_WAIT1, FIN_WAIT2])
def test_over_one_of_which_one_half_is_closed_something_may_still_come(state: str) -> None:
    assert [one.state for one in connections_at(line(state), 8080)] == [state]


@pytest.mark.parametrize(
    "strange", [line("01", "0100007F"), line("01", "x:1F90"), line("01", inode="-1"), line("01")[:40]]
)
def test_strange_lines_are_left_out(strange: str) -> None:
    assert connections_at(strange, 8080) == ()


def test_an_ipv4_client_of_an_ipv6_server_is_who_it_is() -> None:
    for mapped in ("0000000000000000FFFF0000", "00000000000000000000FFFF"):
        (found,) = connections_at(line("01", f"{mapped}0100007F:1F90"), 8080)
        assert found.local == "0100007F:1F90"
    (found,) = connections_at(line("01", "0" * 24 + "01000000:1F90"), 8080)
    assert found.local == "0" * 24 + "01000000:1F90"


@given(st.text() | st.lists(st.text(alphabet="01A:F9 \n")).map(" ".join), st.integers(-5, 70000))
def test_any_text_is_survived_by_connections_too(text: str, port: int) -> None:
    assert all(port in (port_of(one.local), port_of(one.remote)) for one in connections_at(text, port))
