"""A server that takes POSTs on loopback and answers as it is told, well or badly; what it took is kept."""

from __future__ import annotations

import contextlib
import http.server
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import msgspec


class Taken(msgspec.Struct, frozen=True):
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


Behaviour = Callable[[http.server.BaseHTTPRequestHandler], None]


def status(code: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Behaviour:
    """Answers so."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def raw(data: bytes) -> Behaviour:
    """Sends this and closes."""
    return lambda handler: handler.wfile.write(data) and None


def reset(handler: http.server.BaseHTTPRequestHandler) -> None:
    """Ends the connection with RST."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # makefile() holds the socket open: closing both is what sends the RST
    handler.rfile.close()
    handler.connection.close()


class HookServer:
    """`behaviours` are used one a request, the last one for all that follow. `taken` may be waited for with `wait_for`."""

    def __init__(self, *behaviours: Behaviour, port: int = 0) -> None:
        self.behaviours = list(behaviours) or [status(200)]
        self.taken: list[Taken] = []
        self._changed = threading.Condition()
        self._release = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.handle(self)

            def do_CONNECT(self) -> None:
                outer.handle(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def handle(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length)
        with self._changed:
            self.taken.append(Taken(handler.path, dict(handler.headers.items()), body))
            behaviour = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
            self._changed.notify_all()
        handler.close_connection = True
        with contextlib.suppress(OSError):
            behaviour(handler)

    def hang(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """Says nothing until the server is closed."""
        self._release.wait(60)

    def drip(self, head: bytes, piece: bytes) -> Behaviour:
        """Says `head`, then `piece` again and again until the server is closed or the other side has gone."""

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.wfile.write(head)
            while not self._release.wait(0.02):
                handler.wfile.write(piece)

        return answer

    def wait_for(self, enough: Callable[[list[Taken]], bool], seconds: float = 30.0) -> list[Taken]:
        """What was taken, once that is enough."""
        with self._changed:
            assert self._changed.wait_for(lambda: enough(self.taken), seconds), self.taken
            return list(self.taken)

    def close(self) -> None:
        self._release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
