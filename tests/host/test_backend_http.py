"""Asking backends over HTTP, well-behaved and hostile ones."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from moetuned.host.backend_http import BODY_LIMIT_BYTES, Probe, loopback_address

Answer = Callable[[str, socket.socket], bool]
"""Answers a path; False closes the connection."""


class Server:
    """A scripted server that takes one connection after another."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[str] = []
        self.connections = 0
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._stopping = False
        self._current: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._current = connection
            with connection, contextlib.suppress(OSError):
                while not self._stopping and self._one(connection):
                    pass

    def _one(self, connection: socket.socket) -> bool:
        text = b""
        while not text.endswith(b"\r\n\r\n"):
            chunk = connection.recv(4096)
            if not chunk:
                return False
            text += chunk
        path = text.split(b" ")[1].decode()
        self.asked.append(path)
        return self._answer(path, connection)

    def close(self) -> None:
        self._stopping = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._current is not None:
            with contextlib.suppress(OSError):
                self._current.shutdown(socket.SHUT_RDWR)
        self._thread.join(20)
        assert not self._thread.is_alive()


def response(body: str, status: str = "200 OK", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{extra}\r\n{body}".encode()


def bodies(**by_path: str) -> Answer:
    def answer(path: str, connection: socket.socket) -> bool:
        body = by_path.get(path.rpartition("/")[2])
        connection.sendall(response("{}", "404 Not Found") if body is None else response(body))
        return True

    return answer


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Server]]:
    servers: list[Server] = []

    def start(answer: Answer) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


Serve = Callable[[Answer], Server]
AWAKE = '{"is_sleeping":false}'


def test_all_bodies_over_one_connection(serve: Serve) -> None:
    server = serve(bodies(health="ok", slots="[]", metrics="m 1\n", props=AWAKE))
    probe = Probe(server.url, may_sleep=False)
    expected = {"/health": "ok", "/slots": "[]", "/metrics": "m 1\n"}
    assert [probe.poll(), probe.poll()] == [expected, expected]
    assert server.connections == 1
    probe.close()
    assert probe.poll() == expected
    assert server.connections == 2
    probe.close()


def test_props_are_asked_before_slots_where_it_may_sleep(serve: Serve) -> None:
    server = serve(bodies(health="ok", slots="[]", metrics="", props=AWAKE))
    probe = Probe(server.url)
    assert list(probe.poll()) == server.asked == ["/health", "/props", "/slots", "/metrics"]
    assert list(probe.poll(idle=True)) == ["/health", "/props"]
    probe.close()


def test_slots_are_asked_once_more_after_metrics_that_may_have_taken_long(serve: Serve) -> None:
    said = iter(("[]", "[1]", "[2]", "[3]"))

    def answer(path: str, connection: socket.socket) -> bool:
        body = next(said) if path == "/slots" else "{}"
        connection.sendall(response(body, "404 Not Found" if path == "/props" else "200 OK"))
        return True

    server = serve(answer)
    probe = Probe(server.url)
    assert probe.poll(slots_last=True)["/slots"] == "[1]"
    assert server.asked == ["/health", "/props", "/slots", "/metrics", "/slots"]
    assert probe.poll()["/slots"] == "[2]"
    probe.close()


def test_without_slots_or_metrics_nothing_is_asked_twice(serve: Serve) -> None:
    server = serve(bodies(health="ok", metrics="m"))
    probe = Probe(server.url, may_sleep=False)
    assert probe.poll(slots_last=True)["/slots"] == "!404 Not Found"
    assert server.asked == ["/health", "/slots", "/metrics"]
    probe.close()


@pytest.mark.parametrize("props", ['{"is_sleeping": true}', '{"a":1,"is_sleeping":true,"b":2}'])
def test_a_sleeping_server_is_not_woken(serve: Serve, props: str) -> None:
    server = serve(bodies(health="ok", slots="[]", metrics="", props=props))
    probe = Probe(server.url)
    assert probe.poll() == {"/health": "ok", "/props": props}
    assert "/slots" not in server.asked
    probe.close()


def test_a_server_without_props_never_sleeps(serve: Serve) -> None:
    server = serve(bodies(health="ok", slots="[]", metrics="m"))
    probe = Probe(server.url)
    assert probe.poll() == {"/health": "ok", "/props": "!404 Not Found", "/slots": "[]", "/metrics": "m"}
    probe.close()


def test_what_is_not_there_is_not_asked_again_until_the_server_is_restarted(serve: Serve) -> None:
    def answer(path: str, connection: socket.socket) -> bool:
        connection.sendall(response("no", "501 Not Implemented") if path == "/metrics" else response("[]"))
        return True

    server = serve(answer)
    probe = Probe(server.url, may_sleep=False)
    assert [probe.poll()["/metrics"] for _ in range(3)] == ["!501 Not Implemented"] * 3
    assert server.asked.count("/metrics") == 1
    server.close()
    assert probe.poll() == {"/health": "!refused"}
    assert probe._never == {}
    probe.close()


def test_a_loading_server_is_asked_nothing_else(serve: Serve) -> None:
    body = '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'

    def answer(_path: str, connection: socket.socket) -> bool:
        connection.sendall(response(body, "503 Service Unavailable"))
        return True

    server = serve(answer)
    probe = Probe(server.url)
    assert probe.poll() == {"/health": "!503 Service Unavailable"}
    assert server.asked == ["/health"]
    probe.close()


def test_slots_that_do_not_answer_are_a_timeout_beside_a_good_health(serve: Serve) -> None:
    def answer(path: str, connection: socket.socket) -> bool:
        if path == "/slots":
            return connection.recv(1) != b""
        connection.sendall(response("ok"))
        return True

    probe = Probe(serve(answer).url, may_sleep=False, timeout_seconds=0.05)
    assert probe.poll() == {"/health": "ok", "/slots": "!timeout", "/metrics": "ok"}
    probe.close()


def test_health_is_not_asked_while_slots_answers(serve: Serve) -> None:
    works = [True]

    def answer(path: str, connection: socket.socket) -> bool:
        if path == "/slots" and not works[0]:
            return connection.recv(1) != b""
        connection.sendall(response("[]" if path == "/slots" else "ok"))
        return True

    server = serve(answer)
    probe = Probe(server.url, may_sleep=False, timeout_seconds=0.2)

    def asked() -> list[str]:
        server.asked.clear()
        assert probe.poll()["/health"] == "ok"
        return list(server.asked)

    assert [asked(), asked()] == [["/health", "/slots", "/metrics"], ["/slots", "/metrics"]]
    works[0] = False
    assert asked() == ["/slots", "/health", "/metrics"]
    assert asked() == ["/health", "/slots", "/metrics"]
    works[0] = True
    assert [asked(), asked()] == [["/health", "/slots", "/metrics"], ["/slots", "/metrics"]]
    probe.close()


def test_an_answer_byte_by_byte_ends_at_the_deadline(serve: Serve) -> None:
    stop = threading.Event()

    def answer(_path: str, connection: socket.socket) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while not stop.wait(0.005):
            connection.sendall(b"X: y\r\n")
        return False

    probe = Probe(serve(answer).url, timeout_seconds=0.1)
    assert probe.poll() == {"/health": "!timeout"}
    stop.set()
    probe.close()


def test_a_kept_connection_that_was_closed_is_opened_again(serve: Serve) -> None:
    def answer(_path: str, connection: socket.socket) -> bool:
        connection.sendall(response("ok"))
        return False

    server = serve(answer)
    probe = Probe(server.url, may_sleep=False)
    assert probe.poll() == {"/health": "ok", "/slots": "ok", "/metrics": "ok"}
    assert server.connections == 3
    probe.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"SSH-2.0-x\r\n\r\n", "!no HTTP"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "!302 Found"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "!no HTTP: its answer is larger"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (BODY_LIMIT_BYTES + 1), "!no HTTP: its answer is larger"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx", "!no HTTP: it closed the connection in the middle"),
        (b"", "!no HTTP: it closed the connection without"),
    ],
)
def test_hostile_answers_are_reasons(serve: Serve, data: bytes, reason: str) -> None:
    def answer(_path: str, connection: socket.socket) -> bool:
        connection.sendall(data)
        return False

    probe = Probe(serve(answer).url)
    answers = probe.poll()
    assert list(answers) == ["/health"]
    assert answers["/health"].startswith(reason)
    probe.close()


def test_a_path_before_all_paths(serve: Serve) -> None:
    server = serve(bodies(health="ok", slots="[]", metrics="", props=AWAKE))
    probe = Probe(server.url + "/llm/", may_sleep=False)
    assert probe.poll()["/health"] == "ok"
    assert server.asked[0] == "/llm/health"
    probe.close()


def test_metrics_are_asked_again_once_something_was_processed(serve: Serve) -> None:
    slots = ['[{"id": 0, "id_task": 7, "is_processing": false}]']

    def answer(path: str, connection: socket.socket) -> bool:
        return bodies(health="{}", slots=slots[0], metrics="n 1")(path, connection)

    server = serve(answer)
    probe = Probe(server.url, may_sleep=False)

    def asks_metrics() -> bool:
        server.asked.clear()
        assert probe.poll()["/metrics"].startswith("n ")
        return "/metrics" in server.asked

    assert [asks_metrics(), asks_metrics()] == [True, False]
    slots[0] = '[{"id": 0, "id_task": 8, "is_processing": false}]'
    assert [asks_metrics(), asks_metrics()] == [True, False]
    for text in ('[{"id": 0, "id_task": 9, "is_processing": true}]', '[{"id": 0, "is_processing": false}]', "[]", "x"):
        slots[0] = text
        assert [asks_metrics(), asks_metrics()] == [True, True], text
    probe.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS])
def test_what_we_lack_says_nothing_of_the_backend(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def no_socket(*_: object) -> socket.socket:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "socket", no_socket)
    with pytest.raises(OSError, match=os.strerror(number)):
        Probe("http://127.0.0.1:8080").poll()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    probe = Probe(f"http://127.0.0.1:{port}")
    assert probe.poll() == {"/health": "!refused"}
    probe.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8080", ("127.0.0.1", 8080, "")),
        ("http://localhost/", ("127.0.0.1", 80, "")),
        ("http://[::1]:81/a/", ("::1", 81, "/a")),
    ],
)
def test_loopback_addresses(url: str, expected: tuple[str, int, str]) -> None:
    assert loopback_address(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://192.168.1.1:80",
        "http://127.0.0.1.example.org",
        "https://127.0.0.1",
        "http://user@127.0.0.1",
        "http://127.0.0.1:99999",
        "http://127.0.0.1/?a=b",
        "file:///etc/passwd",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/\u00fc",
        "",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1|Port"):
        Probe(url)
