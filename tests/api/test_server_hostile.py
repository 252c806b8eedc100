"""Whatever bytes come in whatever pieces: the server never raises, and goes on serving."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import Served

GOOD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PIECES = st.one_of(
    st.binary(max_size=300),
    st.sampled_from(
        [
            GOOD,
            b"POST /v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
            b"GET /v1/status HTTP/1.1\r\n",
            b"Host: evil\r\n",
            b"\r\n\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Content-Length: -1\r\n",
            b"ffffffffffffffff\r\n",
            b"X: " + b"y" * 20_000,
            b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        ]
    ),
)
CLIENTS = st.lists(st.tuples(st.sampled_from(["tcp", "unix"]), st.lists(PIECES, max_size=6), st.booleans()), max_size=5)


@pytest.fixture(scope="module")
def served():
    with tempfile.TemporaryDirectory() as directory:
        it = Served(directory)
        yield it
        it.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CLIENTS, st.floats(0, 40))
def test_hostile_clients_end_in_nothing_worse_than_a_closed_connection(served, clients, seconds):
    made = []
    for transport, pieces, closes in clients:
        client = served.connect(transport)
        made.append(client)
        for piece in pieces:
            try:
                client.send(piece)
            except OSError:
                break
            served.turn()
        if closes:
            client.close()
    for _ in range(5):
        served.turn()
    served.now += seconds
    served.server.service(served.now)
    assert b"200" in served.ask(GOOD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), "unix")[:15]
    for client in made:
        client.close()
    served.clients.clear()
    served.until(lambda: served.server.connections == 0)
    assert len(served.selector.get_map()) == 2
    tcp_posts = [call for call in served.calls if call[0] != "reload"]
    assert tcp_posts == []
