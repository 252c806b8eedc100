"""Connections to a server in this process, to one in a network of its own, and a made-up /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from moetuned.host.taken_connections import TakenConnections

ALONE = """
import ctypes, os, socket, sys
if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):
    sys.exit("cannot: " + os.strerror(ctypes.get_errno()))
print("alone", flush=True)
sys.stdin.readline()
"""
HEAD = "Tcp: ActiveOpens PassiveOpens\nTcp: 1 "


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_one_that_nobody_has_accepted_counts_and_one_that_is_refused_does_not(family: socket.AddressFamily) -> None:
    address = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with socket.socket(family) as server:
        try:
            server.bind((address, 0))
        except OSError as error:
            pytest.skip(f"no such address here: {error}")
        server.listen()
        port = server.getsockname()[1]
        taken = TakenConnections(os.getpid())
        with socket.create_connection((address, port)):
            assert (taken.so_far() or 0) >= 1  # Others on this machine talk, too.
    taken.close()
    assert taken.so_far() is None


@pytest.mark.kernel
def test_a_network_of_its_own_is_counted_apart_and_still_when_its_process_is_gone() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ALONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        if other.stdout.readline() != "alone\n":
            pytest.skip("no network namespaces here")
        taken = TakenConnections(other.pid)
        assert taken.so_far() == 0
        other.communicate("\n")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert taken.so_far() == 0, "that was in another network"
    taken.close()


def test_a_counter_that_goes_backwards_or_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "7/net").mkdir(parents=True)
    counters = tmp_path / "7/net/snmp"
    counters.write_text(f"{HEAD}5\n")
    taken = TakenConnections(7, str(tmp_path))
    found = []
    for number in ("5", "8", "3", "?", "6"):
        counters.write_text(f"{HEAD}{number}\n")
        found.append(taken.so_far())
    assert found == [0, 3, None, None, 1]
    taken.close()


def test_a_process_that_is_gone_is_unknown(tmp_path: Path) -> None:
    taken = TakenConnections(7, str(tmp_path))
    assert taken.so_far() is None
    taken.close()
