"""HTTP responses, with h11 as the oracle for well-formed ones."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.http_response import HEAD_LIMIT_BYTES, Head, HttpError, parse_body, parse_head

LIMIT = 1000


def parse(data: bytes, closed: bool = False) -> tuple[Head, bytes | None] | None:
    head = parse_head(data)
    return None if head is None else (head, parse_body(head, data, closed, LIMIT))


def test_a_response_with_a_length_and_one_after_it() -> None:
    parsed = parse(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length:  4\r\n\r\nbodyHTTP/1.1 200")
    assert parsed is not None
    head, body = parsed
    assert (head.status, head.reason, head.keep_alive, body) == (503, "Service Unavailable", True, b"body")


@pytest.mark.parametrize(
    ("data", "keep_alive"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200\r\n\r\n", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    ],
)
def test_whether_the_connection_can_be_used_again(data: bytes, keep_alive: bool) -> None:
    head = parse_head(data)
    assert head is not None
    assert head.keep_alive is keep_alive


def test_without_a_length_the_body_ends_with_the_connection() -> None:
    data = b"HTTP/1.1 200 OK\r\n\r\nsome"
    assert parse(data) == (parse_head(data), None)
    assert parse(data, closed=True) == (parse_head(data), b"some")


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * (HEAD_LIMIT_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 1024,
    ],
)
def test_what_is_wrong_or_too_large_is_refused(data: bytes) -> None:
    with pytest.raises(HttpError):
        parse(data)


@pytest.mark.parametrize("head", [b"Content-Length: 9", b"Transfer-Encoding: chunked"])
def test_a_body_that_breaks_off_is_refused(head: bytes) -> None:
    data = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n3\r\nabc"
    assert parse(data) == (parse_head(data), None)
    with pytest.raises(HttpError, match="closed"):
        parse(data, closed=True)


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=30), max_size=6),
    chunked=st.booleans(),
    trailers=st.booleans(),
    status=st.sampled_from([200, 404, 503]),
)
def test_any_response_h11_writes_is_read_whole_and_needs_its_last_byte(
    chunks: list[bytes], chunked: bool, trailers: bool, status: int
) -> None:
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert isinstance(server.next_event(), h11.Request)
    headers = [] if chunked else [("Content-Length", str(sum(map(len, chunks))))]
    data = server.send(h11.Response(status_code=status, headers=headers, reason=b"So"))
    assert data is not None
    for chunk in chunks:
        data += server.send(h11.Data(data=chunk)) or b""
    data += server.send(h11.EndOfMessage(headers=[("X-T", "1")] if trailers and chunked else [])) or b""
    parsed = parse(data)
    assert parsed is not None
    assert (parsed[0].status, parsed[1]) == (status, b"".join(chunks))
    if chunked or chunks:
        cut = parse(data[:-1])
        assert cut is None or cut[1] is None


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_any_bytes_are_parsed_or_refused(data: bytes, closed: bool, chunked: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" if chunked else b""
    try:
        parsed = parse(head + data, closed)
    except HttpError:
        return
    assert parsed is None or parsed[1] is None or len(parsed[1]) <= LIMIT
