"""A server that sends rubbish, too much, or without end: a reason within bounds of size and time, and no exception."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import backend_http
from moetuned.host.backend_http import BODY_LIMIT_BYTES, Probe
from moetuned.parse.http_response import HEAD_LIMIT_BYTES
from moetuned.parse.llama_http import parse_llama_http

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
PIECES = st.sampled_from(
    [
        OK, CHUNKED, b"HTTP/1.1 ", b"HTTP/1.0 200\r\n", b"\r\n", b"\r\n\r\n", b"\n", b"0\r\n\r\n", b"5\r\nabcde\r\n", b"ffffffff\r\n",
        b"-1\r\n", b"+5\r\n", b"0x5\r\n", b"5;a=b\r\n", b"5\r\nabcdefgh", b"Content-Length: 5\r\n", b"Content-Length: -5\r\n", b"abcde",
        b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Connection: close\r\n", b"\0", b"\xff",
        b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 204 x\r\n\r\n", b"HTTP/1.1 503 \xe4\r\nContent-Length: 0\r\n\r\n", b"{}",
    ]
)  # fmt: skip


class Peer:
    """The other end of each connection: gives its bytes in pieces and then what `end` says. Time goes on with each piece."""

    def __init__(self, data: bytes, piece_bytes: int, end: str, step_seconds: float = 0.0) -> None:
        self._data, self._piece_bytes, self.end = data, piece_bytes, end
        self.step_seconds = step_seconds
        self.now, self.given_bytes, self.most_wait = 100.0, 0, 0.0

    def monotonic(self) -> float:
        return self.now

    def connection(self, *_given: object) -> Connection:
        return Connection(self)

    def pieces(self) -> Iterator[bytes]:
        for at in range(0, len(self._data), self._piece_bytes):
            yield self._data[at : at + self._piece_bytes]
        yield from itertools.repeat(self._data[:4096] or b"x" if self.end == "goes on" else b"")


class Connection:
    def __init__(self, peer: Peer) -> None:
        self._peer, self._pieces, self._timeout = peer, peer.pieces(), 0.0

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0
        self._timeout = seconds
        self._peer.most_wait = max(self._peer.most_wait, seconds)

    def connect(self, _address: object) -> None: ...
    def sendall(self, _data: bytes) -> None: ...
    def close(self) -> None: ...

    def recv(self, _limit: int) -> bytes:
        piece = next(self._pieces)
        self._peer.now += self._peer.step_seconds
        if not piece and self._peer.end == "reset":
            raise ConnectionResetError
        if not piece and self._peer.end == "silence":
            self._peer.now += self._timeout
            raise TimeoutError
        self._peer.given_bytes += len(piece)
        return piece


def ask(peer: Peer) -> dict[str, str]:
    """What a probe makes of that peer, twice; both times it has to be answers or reasons."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(backend_http.socket, "socket", peer.connection)
        patched.setattr(backend_http.time, "monotonic", peer.monotonic)
        probe = Probe("http://127.0.0.1:1", may_sleep=True, timeout_seconds=1.0)
        probe.poll()
        answers = probe.poll()
        probe.close()
    return answers


@given(
    st.lists(PIECES | st.binary(max_size=20), max_size=12).map(b"".join),
    st.integers(1, 64),
    st.sampled_from(["close", "reset", "silence", "goes on"]),
)
def test_any_bytes_in_any_pieces(data: bytes, piece_bytes: int, end: str) -> None:
    peer = Peer(data, piece_bytes, end)
    answers = ask(peer)
    assert all(len(answer) <= BODY_LIMIT_BYTES for answer in answers.values())
    assert parse_llama_http(answers) is not None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (OK + b"X: " + b"y" * (HEAD_LIMIT_BYTES + 9), "!no HTTP: its header is longer"),
        (OK + b"A: b\r\n" * HEAD_LIMIT_BYTES, "!no HTTP: its header is longer"),
        (OK + b"\r\n" + b"z", "!no HTTP: its answer is larger"),
        (CHUNKED + b"1\r\nx\r\n", "!no HTTP: a chunk of its answer has the size"),
        (CHUNKED + b"1" * 2000, "!no HTTP: a chunk of its answer has no size"),
        (CHUNKED + b"0\r\n" + b"T: x\r\n" * HEAD_LIMIT_BYTES, "!no HTTP: the end of its answer is no end"),
    ],
    ids=["one header", "many headers", "body", "chunks", "chunk size", "trailers"],
)
def test_what_never_ends_ends_at_a_bound(data: bytes, reason: str) -> None:
    peer = Peer(data, 1 << 16, "goes on")
    assert ask(peer)["/health"].startswith(reason)
    assert peer.given_bytes < 8 * (2 * BODY_LIMIT_BYTES + HEAD_LIMIT_BYTES + (1 << 17)), (
        "two polls of at most two connections each"
    )


def test_chunks_without_end_end_at_the_bound() -> None:
    peer = Peer(
        CHUNKED + b"400\r\n" + b"x" * 1024 + b"\r\n" + (b"400\r\n" + b"x" * 1024 + b"\r\n") * 1000, 1 << 16, "goes on"
    )
    assert ask(peer)["/health"].startswith("!no HTTP: its answer is larger")


@pytest.mark.parametrize(
    "data", [OK + b"Content-Length: 200000\r\n\r\n" + b"x" * 99999, CHUNKED + b"1\r\nx\r\n" * 50000, OK[:9]]
)
def test_bytes_that_trickle_end_at_the_deadline(data: bytes) -> None:
    peer = Peer(data, 1, "silence", step_seconds=0.01)
    start = peer.now
    assert ask(peer) == {"/health": "!timeout"}
    assert peer.now - start <= 2 * (1.0 + 0.02)
    assert peer.most_wait <= 1.0


def test_no_socket_to_be_had_says_nothing_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_given: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    probe = Probe("http://127.0.0.1:1")
    with monkeypatch.context() as patched:
        patched.setattr(backend_http.socket, "socket", none_left)
        with pytest.raises(OSError, match="Too many open files"):
            probe.poll()
    probe.close()
