"""Sends one prompt to a backend on this machine (llama.cpp's /completion) and takes its answer without blocking.

`cache_prompt` is off, so that nothing of a user's is compared with it or kept from it. The answer is streamed, with the progress of reading the
prompt, because the server sees that the connection was closed only when it writes to it. Measured (b11434 and the wheel, two busy cores): an
answer in one piece was generated to its end (110 s) after its asker had gone, a streamed one freed its slot in 0.2 to 2 s; a
prompt of 1800 tokens was read to its end (6 and 22 s), with progress for 0.04 and 1.2 s. Older builds ignore the field. As in `host.backend_http` the other side is not trusted: loopback only,
no redirects, a bound on size and time.
"""

from __future__ import annotations

import socket

from moetuned.decide.prompt_warmup import PromptEnd
from moetuned.host.backend_http import BODY_LIMIT_BYTES, connect, loopback_address, request_bytes
from moetuned.parse.completion_stream import parse_completion
from moetuned.parse.http_response import HEAD_LIMIT_BYTES, Head, HttpError, parse_body, parse_head

CONNECT_SECONDS = 0.1
"""On this machine connecting takes microseconds, or nobody takes connections."""


class PromptRequest:
    """A prompt that runs. Watch `fileno()` for reading, then call `advance()`; `cancel()` at any time."""

    def __init__(self, connection: socket.socket) -> None:
        """Use `send_prompt`."""
        self._connection: socket.socket | None = connection
        self._data = bytearray()
        self._head: Head | None = None
        self.end: PromptEnd | None = None
        connection.setblocking(False)

    def fileno(self) -> int:
        """Its connection; -1 once it has ended."""
        return -1 if self._connection is None else self._connection.fileno()

    def advance(self) -> PromptEnd | None:
        """Take what has come, never waiting for more; how it ended, None while it runs. Then its connection is closed."""
        while self._connection is not None:
            try:
                chunk = self._connection.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError as error:
                self._close(PromptEnd(error=f"the connection to the backend broke: {error.strerror or error}"))
                break
            self._data += chunk
            try:
                ended = self._ended(closed=not chunk)
            except HttpError as error:
                ended = PromptEnd(error=f"the backend's answer is no HTTP: {error}")
            if ended is not None:
                self._close(ended)
        return self.end

    def cancel(self) -> None:
        """Close the connection now: the backend stops working on it."""
        if self._connection is not None:
            self._close(PromptEnd(error="cancelled"))

    def _ended(self, *, closed: bool) -> PromptEnd | None:
        """Raises HttpError."""
        self._head = self._head or parse_head(self._data)
        if self._head is None:
            return PromptEnd(error="the backend closed the connection without an answer") if closed else None
        if self._head.status != 200:
            return PromptEnd(error=f"the backend refused a prompt: {self._head.status} {self._head.reason[:80]}")
        body = parse_body(self._head, self._data, closed, BODY_LIMIT_BYTES)
        if body is None:
            if len(self._data) > 2 * BODY_LIMIT_BYTES + HEAD_LIMIT_BYTES:
                raise HttpError(f"its answer is larger than {BODY_LIMIT_BYTES} bytes")
            return None
        counts = parse_completion(body.decode("utf-8", "replace"))
        return PromptEnd(error="the backend's answer has no end") if counts is None else PromptEnd(counts.tokens)

    def _close(self, end: PromptEnd) -> None:
        connection, self._connection = self._connection, None
        self.end = end
        self._data.clear()
        if connection is not None:
            connection.close()


def send_prompt(url: str, prompt: str, predict_tokens: int) -> PromptRequest | PromptEnd:
    """Send `prompt` to the backend at `url` (loopback) and have it generate at most `predict_tokens`.

    Blocks for at most twice CONNECT_SECONDS, in practice for microseconds. A PromptEnd says why it could not be sent. Raises ValueError
    when `url` is no loopback address.
    """
    host, port, prefix = loopback_address(url)
    body = {
        "prompt": prompt,
        "n_predict": predict_tokens,
        "cache_prompt": False,
        "stream": True,
        "return_progress": True,
        "temperature": 0.0,
    }
    try:
        connection = connect(host, port, CONNECT_SECONDS)
    except OSError as error:
        return PromptEnd(error=f"the backend cannot be reached: {error.strerror or error}")
    try:
        connection.sendall(request_bytes(host, port, f"{prefix}/completion", body, last=True))
    except OSError as error:
        connection.close()
        return PromptEnd(error=f"the backend cannot be reached: {error.strerror or error}")
    return PromptRequest(connection)
