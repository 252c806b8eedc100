"""One HTTP/1.1 connection as bytes in, bytes out: h11 with limits. Touches no socket and no clock."""

from __future__ import annotations

from collections.abc import Iterable

import h11
import msgspec

HEADER_LIMIT_BYTES = 16 << 10
BODY_LIMIT_BYTES = 64 << 10
SERVER_NAME = "moetuned"
_JOIN_BYTES = 16 << 10

_HARDENING = (
    ("Server", SERVER_NAME),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
)


class Request(msgspec.Struct, frozen=True):
    """One whole request. Header names are lower case; of a repeated header the values are joined with ", "."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""


class Answer(msgspec.Struct, frozen=True):
    """What to send back. `headers` are added to the ones every answer has."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class WireError(Exception):
    """The client broke the protocol or a limit; answer with `status` and the text, then close."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Wire:
    """Reads requests from received bytes and turns answers into bytes to send, one request at a time."""

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_LIMIT_BYTES)
        self._head: Request | None = None
        self._body = bytearray()
        self._head_only = False

    @property
    def client_closed(self) -> bool:
        """The client sent all it will ever send, and no request is left to answer."""
        return self._h11.their_state in (h11.CLOSED, h11.MUST_CLOSE)

    @property
    def buffered(self) -> bool:
        """Bytes were received that no request has used yet."""
        return bool(self._h11.trailing_data[0])

    @property
    def idle(self) -> bool:
        """Between requests: nothing of the next one has come."""
        return self._h11.their_state is h11.IDLE and not self.buffered

    def receive(self, data: bytes) -> None:
        """Take bytes from the client; b"" is its end of file."""
        self._h11.receive_data(data)

    def next_request(self) -> Request | None:
        """The next whole request, None while it is incomplete. Raises WireError."""
        try:
            while True:
                event = self._h11.next_event()
                if isinstance(event, h11.Request):
                    self._begin(event)
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > BODY_LIMIT_BYTES:
                        raise WireError(413, f"The body is longer than {BODY_LIMIT_BYTES >> 10} KiB.")
                elif isinstance(event, h11.EndOfMessage):
                    return self._finish()
                else:  # NEED_DATA, PAUSED, ConnectionClosed
                    return None
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:
                raise WireError(431, f"The header is longer than {HEADER_LIMIT_BYTES >> 10} KiB.") from error
            raise WireError(error.error_status_hint, f"This is not valid HTTP/1.1: {error}.") from error

    def _begin(self, event: h11.Request) -> None:
        self._head_only = event.method == b"HEAD"
        if event.http_version not in (b"1.0", b"1.1"):
            raise WireError(505, "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
        headers: dict[str, str] = {}
        size = len(event.target)
        for name, value in event.headers:
            key, text = name.decode("ascii", "replace").lower(), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
            size += len(name) + len(value) + 4
        if size > HEADER_LIMIT_BYTES:
            raise WireError(431, f"The header is longer than {HEADER_LIMIT_BYTES >> 10} KiB.")
        length = headers.get("content-length", "0")  # h11 has checked that it is a number
        if len(length) > 18 or int(length) > BODY_LIMIT_BYTES:
            raise WireError(413, f"The body is longer than {BODY_LIMIT_BYTES >> 10} KiB.")
        self._head = Request(
            method=event.method.decode("ascii", "replace"),
            target=event.target.decode("ascii", "replace"),
            headers=headers,
        )
        self._body.clear()

    def _finish(self) -> Request:
        assert self._head is not None
        request = msgspec.structs.replace(self._head, body=bytes(self._body))
        self._head = None
        self._body.clear()
        return request

    def continue_bytes(self) -> bytes:
        """What to send to a client that waits for "100 Continue" before its body; b"" when none does."""
        if not self._h11.they_are_waiting_for_100_continue:
            return b""
        return self._h11.send(h11.InformationalResponse(status_code=100, headers=[])) or b""

    def respond(self, answer: Answer, *, close: bool = False) -> tuple[list[bytes], bool]:
        """Bytes of the answer, and whether the connection may be used again.

        A large body is shared, not copied; a small one comes in one piece with the head, so that it is one packet. Nothing is sent when the protocol state allows no
        answer any more (the client is gone).
        """
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return [], False
        headers: list[tuple[str, str]] = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *_HARDENING,
            *answer.headers,
        ]
        if close:
            headers.append(("Connection", "close"))
        pieces: list[bytes] = []
        events: Iterable[h11.Event] = (
            h11.Response(status_code=answer.status, headers=headers),
            *(() if self._head_only else (h11.Data(data=answer.body),)),
            h11.EndOfMessage(),
        )
        for event in events:
            pieces += self._h11.send_with_data_passthrough(event) or []
        states = self._h11.states
        reusable = states[h11.SERVER] is h11.DONE and states[h11.CLIENT] is h11.DONE
        if reusable:
            self._h11.start_next_cycle()
        if len(answer.body) <= _JOIN_BYTES:
            return [b"".join(pieces)], reusable
        split = next((at for at, piece in enumerate(pieces) if piece is answer.body), len(pieces))
        parts = [b"".join(pieces[:split]), *pieces[split : split + 1], b"".join(pieces[split + 1 :])]
        return [part for part in parts if part], reusable
