"""Whoever asks knows of each request how it ended."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from relief_asker import COMPLETE, CUT_OFF, REFUSED, Asker, Outcome

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
PIECE = b'data: {"content":"a","stop":false}\n\n'
LAST = b'data: {"content":"","stop":true}\n\n'


def whole(status: str, body: object) -> bytes:
    text = json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


@contextmanager
def serving(answer: bytes) -> Iterator[int]:
    """A server that gives one connection these bytes and closes it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                # What is not read of the request would make a reset of the end, and that of an answer that is still on its way.
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def ask(port: int) -> Outcome:
    return Asker(port, lambda number: {"n": number})._ask(0)


@pytest.mark.parametrize(
    ("answer", "kind", "answered"),
    [
        (STREAM + PIECE + LAST, COMPLETE, True),
        (STREAM + PIECE, CUT_OFF, True),
        (STREAM + PIECE + b'data: {"con', CUT_OFF, True),
        (whole("200 OK", {"content": "abc"}), COMPLETE, True),
        (whole("200 OK", {"content": "abc"})[:-3], CUT_OFF, True),
        (whole("500 Oops", {}), CUT_OFF, True),
        (whole("503 Loading", {}), REFUSED, False),
        (b"", CUT_OFF, False),
    ],
)
def test_how_a_request_ended(answer: bytes, kind: str, answered: bool) -> None:
    with serving(answer) as port:
        outcome = ask(port)
    assert (outcome.kind, outcome.answered) == (kind, answered)


def test_where_nobody_listens_it_is_refused() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert ask(probe.getsockname()[1]).kind == REFUSED
