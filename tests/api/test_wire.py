from __future__ import annotations

import itertools

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.api.wire import BODY_LIMIT_BYTES, HEADER_LIMIT_BYTES, Answer, Request, Wire, WireError

OK = Answer(200, "text/plain", b"hello")


def sent(wire: Wire, answer: Answer = OK, *, close: bool = False) -> bytes:
    return b"".join(wire.respond(answer, close=close)[0])


def serve(data: list[bytes]) -> tuple[list[Request], bytes, int | None]:
    """Feed pieces as a server would; requests seen, bytes sent, status of the protocol error that ended it."""
    wire, seen, out = Wire(), [], b""
    for piece in data:
        wire.receive(piece)
        while True:
            try:
                request = wire.next_request()
            except WireError as error:
                return seen, out, error.status
            if request is None:
                break
            seen.append(request)
            out += sent(wire)
    return seen, out, None


def test_request_and_answer():
    wire = Wire()
    assert wire.idle
    wire.receive(b"GET /x?y=1 HTTP/1.1\r\nHost: a\r\nX-Two: 1\r\nx-two: 2\r\n\r\n")
    assert wire.next_request() == Request("GET", "/x?y=1", {"host": "a", "x-two": "1, 2"})
    head, _, body = sent(wire).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b"hello"
    assert wire.idle


def test_a_large_answer_shares_its_body():
    wire = Wire()
    wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    wire.next_request()
    large = Answer(200, "text/plain", b"x" * 100_000)
    pieces, reusable = wire.respond(large)
    assert reusable
    assert pieces[1] is large.body
    assert len(pieces) == 2


def test_head_gets_no_body_and_the_connection_lives():
    wire = Wire()
    wire.receive(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
    wire.next_request()
    data = sent(wire)
    assert b"content-length: 5" in data.lower()
    assert data.endswith(b"\r\n\r\n")
    assert wire.next_request() == Request("GET", "/", {"host": "a"})
    assert sent(wire).endswith(b"hello")


@pytest.mark.parametrize(
    "request_bytes", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"]
)
def test_a_client_that_wants_to_close_gets_a_close(request_bytes):
    wire = Wire()
    wire.receive(request_bytes)
    wire.next_request()
    assert wire.respond(OK)[1] is False


@given(st.lists(st.integers(1, 400), max_size=12), st.integers(1, 5))
def test_any_split_of_merged_requests_gives_the_same(cuts, count):
    body = b'{"a": 1}'
    one = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    chunked = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    stream = (one + chunked) * count
    points = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    pieces = [stream[a:b] for a, b in itertools.pairwise(points)]
    seen, out, error = serve(pieces)
    assert error is None
    assert [(item.target, item.body) for item in seen] == [("/v1/x", body), ("/c", b"abcde")] * count
    assert out.count(b"HTTP/1.1 200") == 2 * count


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=20))
def test_rubbish_only_ever_gives_requests_or_a_protocol_error(pieces):
    _, _, status = serve(pieces)
    assert status is None or 400 <= status < 600


@given(st.binary(max_size=300), st.integers(0, 60))
def test_a_damaged_request_never_raises_anything_else(noise, at):
    good = b"POST /v1/warm HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    _, _, status = serve([good[:at] + noise + good[at:]])
    assert status is None or 400 <= status < 600


def test_header_limit_while_incomplete_and_when_complete():
    endless = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: " + b"a" * (2 * HEADER_LIMIT_BYTES)
    assert serve([endless])[2] == 431
    whole = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (HEADER_LIMIT_BYTES + 100) + b"\r\n\r\n"
    assert serve([whole])[2] == 431
    fits = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (HEADER_LIMIT_BYTES - 200) + b"\r\n\r\n"
    assert len(serve([fits])[0]) == 1


def test_body_limit_by_length_and_by_chunks():
    announced = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (BODY_LIMIT_BYTES + 1)
    assert serve([announced])[2] == 413
    absurd = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 200 + b"\r\n\r\n"
    assert serve([absurd])[2] in (400, 413)
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    start = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert serve([start, *([chunk] * 5)])[2] == 413
    assert len(serve([start, *([chunk] * 4), b"0\r\n\r\n"])[0][0].body) == BODY_LIMIT_BYTES


def test_expect_continue():
    wire = Wire()
    wire.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert wire.next_request() is None
    assert wire.continue_bytes().startswith(b"HTTP/1.1 100")
    assert wire.continue_bytes() == b""
    wire.receive(b"{}")
    request = wire.next_request()
    assert request is not None
    assert request.body == b"{}"


def test_a_protocol_error_can_still_be_answered():
    wire = Wire()
    wire.receive(b"\x00\xff rubbish\r\n\r\n")
    with pytest.raises(WireError) as caught:
        wire.next_request()
    assert caught.value.status == 400
    assert sent(wire, Answer(400, "text/plain", b"no"), close=True).startswith(b"HTTP/1.1 400")
    assert wire.respond(OK) == ([], False)


def test_half_closed_client_is_answered_then_seen_as_closed():
    wire = Wire()
    wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    wire.receive(b"")
    assert wire.next_request() is not None
    assert sent(wire).endswith(b"hello")
    assert wire.next_request() is None
    assert wire.client_closed


def test_answers_read_back_with_a_client():
    wire = Wire()
    client = h11.Connection(h11.CLIENT)
    wire.receive(client.send(h11.Request(method="GET", target="/", headers=[("Host", "a")])))
    wire.next_request()
    client.send(h11.EndOfMessage())
    client.receive_data(sent(wire))
    response = client.next_event()
    assert isinstance(response, h11.Response)
    assert (b"cross-origin-resource-policy", b"same-origin") in list(response.headers)
    assert not any(name.startswith(b"access-control") for name, _ in response.headers)
