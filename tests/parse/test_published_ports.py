from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.published_ports import local_addresses, published_port

TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 172.17.0.0/16 2 0 2
           |-- 172.17.0.0
              /16 link UNICAST
           |-- 172.17.0.2
              /32 host LOCAL
        |-- 172.17.255.255
           /32 link BROADCAST
"""
PROXY = [
    "/usr/bin/docker-proxy", "-proto", "tcp", "-host-ip", "0.0.0.0", "-host-port", "9000",
    "-container-ip", "172.17.0.2", "-container-port", "8080",
]  # fmt: skip


def test_addresses() -> None:
    assert local_addresses(TRIE) == {"172.17.0.2"}
    assert local_addresses("") == frozenset()


def test_the_port_that_docker_publishes() -> None:
    other = ["docker-proxy", "-proto", "tcp", "-host-ip", "0.0.0.0", "-host-port", "1"]
    assert published_port([other, ["sh"], [], [*PROXY, "-use-listen-fd"]], {"172.17.0.2"}, 8080) == 9000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("docker-proxy", "not-docker-proxy"),
        ("tcp", "udp"),
        ("172.17.0.2", "172.17.0.3"),
        ("8080", "8081"),
        ("9000", "90000"),
        ("9000", "x"),
        ("0.0.0.0", "192.0.2.7"),
    ],
)
def test_what_does_not_lead_there(old: str, new: str) -> None:
    assert published_port([[word.replace(old, new) for word in PROXY]], {"172.17.0.2"}, 8080) is None


@given(st.lists(st.lists(st.text())), st.text())
def test_any_text(commands: list[list[str]], trie: str) -> None:
    assert published_port(commands, local_addresses(trie), 8080) is None
