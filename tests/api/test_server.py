from __future__ import annotations

import logging
import os
import selectors
import socket

import pytest
from served import Served

from moetuned.api import server as server_module
from moetuned.api.errors import ListenError
from moetuned.api.server import (
    IDLE_SECONDS,
    MAX_CONNECTIONS,
    MAX_TCP_CONNECTIONS,
    MAX_WAITING_BYTES,
    REQUEST_SECONDS,
    STUCK_SECONDS,
    TCP_AGAIN_SECONDS,
    WRITE_SECONDS,
)
from moetuned.schema.history import BackendHistory, Histories

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET_CLOSE = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
def served(tmp_path):
    it = Served(str(tmp_path))
    yield it
    it.close()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_one_request(served, transport):
    answer = served.ask(GET_CLOSE, transport)
    assert status_of(answer) == 200
    assert b"moetuned answers at" in answer
    served.until(lambda: served.server.connections == 0)


def test_several_requests_on_one_connection(served):
    client = served.connect()
    for _ in range(5):
        client.sendall(GET)
        assert served.read_answers(client, 1).startswith(b"HTTP/1.1 200")
    assert served.server.connections == 1


def test_pipelined_requests_are_answered_in_order_one_a_turn(served):
    client = served.connect()
    client.sendall(GET * 20 + GET_CLOSE)
    answers = served.read_all(client)
    assert answers.count(b"HTTP/1.1 200") == 21


def test_a_byte_at_a_time(served):
    client = served.connect()
    for byte in GET_CLOSE:
        client.sendall(bytes([byte]))
        served.turn()
    assert status_of(served.read_all(client)) == 200


def test_post_over_the_socket_acts_and_over_tcp_does_not(served):
    post = (
        b'POST /v1/warm HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 17\r\n\r\n{"backend":"glm"}'
    )
    assert status_of(served.ask(post, "unix")) == 200
    assert served.calls == [("warm", {"backend": "glm"})]
    assert status_of(served.ask(post, "tcp")) == 405
    assert len(served.calls) == 1


def test_foreign_host_over_tcp(served):
    assert status_of(served.ask(b"GET /v1/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")) == 421


@pytest.mark.parametrize(
    ("rubbish", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) + b"\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (64 << 10), 431),
        (b"POST /v1/warm HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 100_000, 413),
    ],
)
def test_rubbish_is_answered_and_the_answer_survives_unread_bytes(served, rubbish, status):
    client = served.connect()
    client.setblocking(True)
    client.sendall(rubbish)
    client.setblocking(False)
    got = bytearray()

    def answered() -> bool:
        try:
            got.extend(client.recv(1 << 16))
        except BlockingIOError:
            pass
        return got.endswith(b"}\n")

    served.until(answered)
    assert status_of(bytes(got)) == status
    client.close()
    served.until(lambda: served.server.connections == 0)


def test_a_client_that_sends_nothing_or_crawls_is_dropped(served):
    silent, crawling = served.connect(), served.connect()
    served.until(lambda: served.server.connections == 2)
    for _ in range(int(REQUEST_SECONDS) - 1):
        crawling.sendall(b"G")
        served.turn()
        served.now += 1
        served.server.service(served.now)
    assert served.server.connections == 2
    served.now += 1.1
    served.server.service(served.now)
    assert served.server.connections == 0
    assert served.read_all(silent) == b""
    assert status_of(served.read_all(crawling)) == 408


def test_a_slow_body_is_dropped_too(served):
    client = served.connect("unix")
    client.sendall(b"POST /v1/warm HTTP/1.1\r\nHost: a\r\nContent-Length: 17\r\n\r\n{")
    served.until(lambda: served.server.connections == 1)
    served.turn()
    served.now += REQUEST_SECONDS + 0.1
    served.server.service(served.now)
    assert status_of(served.read_all(client)) == 408
    assert served.calls == []


def test_an_idle_keep_alive_connection_ends(served):
    client = served.connect()
    client.sendall(GET)
    served.read_answers(client, 1)
    served.now += IDLE_SECONDS - 1
    served.server.service(served.now)
    assert served.server.connections == 1
    served.now += 2
    served.server.service(served.now)
    assert served.read_all(client) == b""


def test_a_client_that_does_not_read_is_dropped_and_blocks_nobody(served):
    served.snapshot = _large(served.snapshot)
    deaf = served.connect("tcp", receive_buffer=4096)
    deaf.sendall(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
    served.until(lambda: served.server.connections == 1)
    for _ in range(20):
        served.turn()
    assert status_of(served.ask(GET_CLOSE, "unix")) == 200
    served.now += WRITE_SECONDS + 0.1
    served.server.service(served.now)
    assert served.server.connections == 0


def _large(snapshot):
    import msgspec

    return msgspec.structs.replace(snapshot, notes=("x" * 3_000_000,))


def test_a_large_answer_arrives_whole(served):
    served.snapshot = _large(served.snapshot)
    answer = served.ask(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert len(answer) > 3_000_000
    assert answer.endswith(b"}\n")


def test_large_answers_that_nobody_reads_are_bounded_and_the_socket_still_gets_its_own(served):
    served.server._routes._history = lambda _seconds, _backend: Histories(
        1, 1, (BackendHistory("glm", {"tokens_per_second": (1.0,) * 100_000}),)
    )
    for listener in served.server._listeners:  # or the kernel takes all of it
        listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ask = b"GET /v1/history HTTP/1.1\r\nHost: localhost\r\n\r\n"
    deaf = [served.connect("tcp", receive_buffer=4096) for _ in range(30)]
    for client in deaf:
        client.sendall(ask)
    served.until(
        lambda: all(item.requests for item in served.server._connections.values()) and served.server.connections == 30
    )
    waiting = sum(len(piece) for item in served.server._connections.values() for piece in item.out)
    assert 0 < waiting <= MAX_WAITING_BYTES // 2 + 30_000
    refused = [client for client in deaf if client.recv(12).endswith(b"503")]
    assert 0 < len(refused) < len(deaf)
    mine = served.ask(ask.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), "unix")
    assert status_of(mine) == 200
    assert len(mine) > 400_000


def test_200_connections_are_bounded_and_the_socket_stays_reachable(served):
    served.turn()
    crowd = [served.connect() for _ in range(60)]
    for _ in range(20):
        served.turn()
    crowd += [served.connect() for _ in range(60)]
    for _ in range(20):
        served.turn()
    crowd += [served.connect() for _ in range(60)]
    for _ in range(20):
        served.turn()
    assert served.server.connections == MAX_TCP_CONNECTIONS
    assert status_of(served.ask(GET_CLOSE, "unix")) == 200
    assert status_of(served.read_all(crowd[-1])) == 503
    for _ in range(60):
        served.connect("unix")
        served.turn()
    assert served.server.connections == MAX_CONNECTIONS
    served.now += REQUEST_SECONDS + 0.1
    served.server.service(served.now)
    assert served.server.connections == 0
    assert status_of(served.ask(GET_CLOSE)) == 200


def test_an_idle_connection_gives_way_to_a_new_one(served):
    for _ in range(MAX_TCP_CONNECTIONS):
        client = served.connect()
        client.sendall(GET)
        served.read_answers(client, 1)
        served.now += 0.01
    assert served.server.connections == MAX_TCP_CONNECTIONS
    assert status_of(served.ask(GET_CLOSE)) == 200
    assert served.read_all(served.clients[0]) == b""


def test_one_that_is_stuck_gives_way_but_not_one_that_has_just_come(served):
    for _ in range(MAX_TCP_CONNECTIONS):
        served.connect().sendall(b"GET / HT")
        served.turn()
    for _ in range(20):
        served.turn()
    assert served.server.connections == MAX_TCP_CONNECTIONS
    assert status_of(served.ask(GET_CLOSE)) == 503
    served.now += STUCK_SECONDS
    assert status_of(served.ask(GET_CLOSE)) == 200
    assert served.read_all(served.clients[0]) == b""
    assert served.server.connections == MAX_TCP_CONNECTIONS - 1


def test_a_stuck_client_of_the_socket_does_not_give_way_to_tcp(served):
    stuck = served.connect("unix")
    served.turn()
    served.now += STUCK_SECONDS
    for _ in range(MAX_TCP_CONNECTIONS + 5):
        served.connect()
        served.turn()
    stuck.sendall(GET)
    assert status_of(served.read_answers(stuck, 1)) == 200


def test_a_client_that_vanishes(served):
    import struct

    client = served.connect()
    client.sendall(GET * 50)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    served.until(lambda: served.server.connections == 0)
    assert status_of(served.ask(GET_CLOSE)) == 200


def test_no_descriptors_left_for_clients(served, monkeypatch):
    unix = served.server._listeners[0]
    real = unix.socket

    class Starved:
        def accept(self):
            raise OSError(24, "Too many open files")

        def fileno(self):
            return real.fileno()

        def close(self):
            real.close()

    unix.socket = Starved()
    client = served.connect("unix")
    client.sendall(GET_CLOSE)
    served.turn(1.0)
    assert served.turn() == 0  # it does not spin on a listener that stays readable
    unix.socket = real
    served.server.service(served.now)
    assert status_of(served.read_all(client)) == 200


def test_close_takes_the_socket_file_away(tmp_path):
    it = Served(str(tmp_path))
    assert os.path.exists(it.path)
    it.close()
    assert not os.path.exists(it.path)
    assert len(it.selector.get_map() or {}) == 0


def test_a_second_daemon_is_refused_and_harms_nothing(served, tmp_path):
    with pytest.raises(ListenError, match="running moetuned"):
        Served(str(tmp_path))
    assert status_of(served.ask(GET_CLOSE, "unix")) == 200


def test_without_its_port_all_else_goes_on_and_it_is_had_once_it_is_free(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        it = Served(str(tmp_path), f"127.0.0.1:{port}")
        assert it.server.port is None
        assert status_of(it.ask(GET_CLOSE, "unix")) == 200
        for _ in range(3):
            it.now += TCP_AGAIN_SECONDS
            it.server.service(it.now)
        assert "another program uses it" in it.server.note
        assert [record.levelname for record in caplog.records] == ["WARNING"], "the same is said once"
    try:
        it.now += TCP_AGAIN_SECONDS - 1
        it.server.service(it.now)
        assert it.server.port is None
        it.now += 1
        it.server.service(it.now)
        assert (it.server.port, it.server.note) == (port, None)
        assert status_of(it.ask(GET_CLOSE)) == 200
        assert caplog.messages[1:] == [f"api.listen: listening at 127.0.0.1:{port} now"]
    finally:
        it.close()


def test_tcp_off(tmp_path):
    it = Served(str(tmp_path), listen=False)
    try:
        assert it.server.port is None
        assert status_of(it.ask(GET_CLOSE, "unix")) == 200
    finally:
        it.close()


def test_requests_a_connection_are_bounded(served, monkeypatch):
    monkeypatch.setattr(server_module, "REQUESTS_A_CONNECTION", 3)
    client = served.connect()
    client.sendall(GET * 5)
    answers = served.read_all(client)
    assert answers.count(b"HTTP/1.1 200") == 3
    assert answers.lower().count(b"connection: close") == 1


def test_interest_follows_the_state(served):
    client = served.connect()
    client.sendall(GET * 3)
    served.read_answers(client, 3)
    keys = [key for key in served.selector.get_map().values() if key.events & selectors.EVENT_WRITE]
    assert keys == []
