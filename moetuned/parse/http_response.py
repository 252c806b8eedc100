"""HTTP/1.1 responses to a GET (RFC 9112), as bytes come in: just what asking a local backend once a second needs.

http.client takes 0.5 ms of CPU for such an answer, most of it for header objects nobody looks at.
"""

from __future__ import annotations

import msgspec

HEAD_LIMIT_BYTES = 16 << 10
_CHUNK_LINE_LIMIT_BYTES = 1024
_MAX_DIGITS = 15


class HttpError(ValueError):
    """What came is no HTTP response, or one that is too large; the text is one sentence."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """Status line and the headers that say where the body ends. `body_at`: its first byte.

    `length` None and not `chunked`: the body ends with the connection. `keep_alive`: the connection can be used again.
    """

    status: int
    reason: str
    body_at: int
    length: int | None
    chunked: bool
    keep_alive: bool


def parse_head(data: bytes | bytearray) -> Head | None:
    """The head at the start of `data`; None when more has to come. Raises HttpError."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > HEAD_LIMIT_BYTES:
            raise HttpError(f"its header is longer than {HEAD_LIMIT_BYTES} bytes")
        if not data.startswith(b"HTTP/1."[: len(data)]):
            raise HttpError("its answer is not HTTP/1")
        return None
    status_line, *lines = bytes(data[:end]).split(b"\r\n")
    protocol, _, rest = status_line.partition(b" ")
    code, _, reason = rest.partition(b" ")
    if protocol not in (b"HTTP/1.1", b"HTTP/1.0") or len(code) != 3 or not code.isdigit() or int(code) < 200:
        raise HttpError(f"its status line is {status_line[:80]!r}")
    length, chunked, keep_alive = None, False, protocol == b"HTTP/1.1"
    for line in lines:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip().lower()
        if name == b"content-length":
            if not value.isdigit() or len(value) > _MAX_DIGITS or length not in (None, int(value)):
                raise HttpError(f"its Content-Length is {value[:80]!r}")
            length = int(value)
        elif name == b"transfer-encoding":
            if value != b"chunked":
                raise HttpError(f"its Transfer-Encoding is {value[:80]!r}")
            chunked = True
        elif name == b"connection":
            keep_alive = b"close" not in value and (keep_alive or b"keep-alive" in value)
    if int(code) in (204, 304):
        length, chunked = 0, False
    ends_itself = chunked or length is not None
    return Head(
        status=int(code),
        reason=reason.decode("latin-1"),
        body_at=end + 4,
        length=None if chunked else length,
        chunked=chunked,
        keep_alive=keep_alive and ends_itself and not (chunked and length is not None),
    )


def parse_body(head: Head, data: bytes | bytearray, closed: bool, limit_bytes: int) -> bytes | None:
    """The body in `data` (the response from its start); None when more has to come.

    `closed`: the server closed the connection, nothing more comes. Raises HttpError, also for more than `limit_bytes`.
    """
    if head.chunked:
        body = _chunks(data, head.body_at, limit_bytes)
    else:
        have = len(data) - head.body_at
        if (have if head.length is None else head.length) > limit_bytes:
            raise HttpError(f"its answer is larger than {limit_bytes} bytes")
        whole = closed if head.length is None else have >= head.length
        body = (
            bytes(data[head.body_at : head.body_at + (have if head.length is None else head.length)]) if whole else None
        )
    if body is None and closed:
        raise HttpError("it closed the connection in the middle of its answer")
    return body


def _chunks(data: bytes | bytearray, at: int, limit_bytes: int) -> bytes | None:
    body = bytearray()
    while True:
        line_end = data.find(b"\r\n", at, at + _CHUNK_LINE_LIMIT_BYTES)
        if line_end < 0:
            if len(data) - at >= _CHUNK_LINE_LIMIT_BYTES:
                raise HttpError("a chunk of its answer has no size")
            return None
        text = bytes(data[at:line_end]).partition(b";")[0].strip()
        if not text or len(text) > 8 or text.strip(b"0123456789abcdefABCDEF"):
            raise HttpError(f"a chunk of its answer has the size {text[:80]!r}")
        size, start = int(text, 16), line_end + 2
        if len(body) + size > limit_bytes:
            raise HttpError(f"its answer is larger than {limit_bytes} bytes")
        if size == 0:
            return _after_trailers(data, start, body)
        if len(data) < start + size + 2:
            return None
        if data[start + size : start + size + 2] != b"\r\n":
            raise HttpError("a chunk of its answer is longer than it said")
        body += data[start : start + size]
        at = start + size + 2


def _after_trailers(data: bytes | bytearray, at: int, body: bytearray) -> bytes | None:
    """Trailer lines up to an empty one follow the last chunk."""
    if data[at : at + 2] == b"\r\n" or b"\r\n\r\n" in data[at : at + HEAD_LIMIT_BYTES]:
        return bytes(body)
    if len(data) - at > HEAD_LIMIT_BYTES:
        raise HttpError("the end of its answer is no end")
    return None
