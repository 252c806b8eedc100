"""Two hundred clients that mean ill, as a process of its own: `python -m fakes.hostile_clients PORT SOCKET`.

They go on until standard input ends; then one line of JSON says, by kind, how many connections there were and which answers came.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import socket
import struct
import sys
import time
from collections import Counter

CLIENTS = 200
AGAIN_SECONDS = 0.1
"""So long after its end a client comes again: what is tried is the daemon, not how fast the machine connects sockets."""
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_HOST = b"Host: localhost\r\n"
_GET = b"GET %s HTTP/1.1\r\n" + _HOST + b"\r\n"
_POST = b"POST /v1/%s HTTP/1.1\r\n" + _HOST + b"%sContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_ACTIONS = (b"reload", b"tune", b"warm", b"backend")
_FOREIGN = b"Origin: http://evil.example\r\n"

SENDS = {
    "silent": b"",
    "slow": _GET % b"/v1/status",
    "rubbish": os.urandom(8192),
    "huge header": b"GET / HTTP/1.1\r\n" + _HOST + b"X: " + b"y" * (1 << 20),
    "many headers": b"GET / HTTP/1.1\r\n" + _HOST + b"X: y\r\n" * 100_000,
    "huge body": b"POST /v1/reload HTTP/1.1\r\n" + _HOST + b"Content-Length: 99999999999\r\n\r\n" + b"z" * (1 << 20),
    "endless body": b"POST /v1/reload HTTP/1.1\r\n"
    + _HOST
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"1000\r\n"
    + b"z" * 4096
    + b"\r\n" * 2,
    "foreign host": b"GET /v1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "cross origin": b"".join(_POST % (action, _FOREIGN) for action in _ACTIONS),
    "post": b"".join(_POST % (action, b"") for action in _ACTIONS),
    "other methods": b"".join(
        b"%s /v1/reload HTTP/1.1\r\n" % word + _HOST + b"\r\n"
        for word in (b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE")
    ),
    "whole address": b"POST http://localhost/v1/reload HTTP/1.1\r\n" + _HOST + b"Content-Length: 2\r\n\r\n{}",
    "pretended post": b"GET /v1/reload HTTP/1.1\r\n" + _HOST + b"X-HTTP-Method-Override: POST\r\n\r\n",
    "pipelined": (_GET % b"/metrics") * 200,
    "half open": b"GET /v1/status HTTP/1.1\r\nHost: loc",
    "reset": b"GET /v1/status HTTP/1.1\r\nHost: loc",
    "deaf": (_GET % b"/metrics") * 1000,
    "explain": (_GET % b"/v1/explain") * 20,
}
"""What a client of each kind sends. Over the socket this process may act, so nothing is sent there that would."""
OVER_SOCKET = (
    "silent",
    "slow",
    "rubbish",
    "huge header",
    "cross origin",
    "pipelined",
    "half open",
    "reset",
    "deaf",
    "explain",
)


class Hostile:
    """One client, over and over."""

    def __init__(self, kind: str, address: tuple[str, int] | str, counts: Counter[str]) -> None:
        self.kind, self.address, self.counts = kind, address, counts
        self.connection: socket.socket | None = None
        self.left = memoryview(b"")
        self.next_byte = 0.0
        self.again_at = 0.0

    def connect(self, selector: selectors.BaseSelector) -> None:
        connection = socket.socket(socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET)
        if self.kind == "deaf":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.connect(self.address)
        self.counts["connections"] += 1
        self.connection, self.left = connection, memoryview(SENDS[self.kind])
        selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def drop(self, selector: selectors.BaseSelector, *, reset: bool = False) -> None:
        assert self.connection is not None
        selector.unregister(self.connection)
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.connection, self.again_at = None, time.monotonic() + AGAIN_SECONDS

    def turn(self, selector: selectors.BaseSelector, events: int) -> None:
        assert self.connection is not None
        try:
            if events & selectors.EVENT_READ and self.kind != "deaf":
                got = self.connection.recv(1 << 16)
                if not got:
                    self.drop(selector)
                    return
                self.counts.update(f"{status.decode()}" for status in _STATUS.findall(got))
            if events & selectors.EVENT_WRITE:
                self.write(selector)
        except BlockingIOError:
            pass
        except OSError:
            self.drop(selector)

    def write(self, selector: selectors.BaseSelector) -> None:
        assert self.connection is not None
        now = time.monotonic()
        if self.kind == "slow" and now < self.next_byte:
            return
        self.next_byte = now + 0.1
        if self.left:
            self.left = self.left[self.connection.send(self.left[:1] if self.kind == "slow" else self.left) :]
        if not self.left and self.kind != "slow":
            if self.kind == "half open":
                self.connection.shutdown(socket.SHUT_WR)
            if self.kind == "reset":
                self.drop(selector, reset=True)
            else:
                selector.modify(self.connection, selectors.EVENT_READ, self)


def main(port: int, path: str) -> None:
    selector = selectors.DefaultSelector()
    counts: dict[str, Counter[str]] = {}
    clients = []
    for number in range(CLIENTS):
        over_socket = number % 10 == 0
        kinds = OVER_SOCKET if over_socket else tuple(SENDS)
        kind = kinds[number // (10 if over_socket else 1) % len(kinds)]
        where: tuple[str, int] | str = path if over_socket else ("127.0.0.1", port)
        name = f"{kind}, socket" if over_socket else kind
        clients.append(Hostile(kind, where, counts.setdefault(name, Counter())))
    selector.register(sys.stdin, selectors.EVENT_READ, None)
    while True:
        for client in clients:
            if client.connection is None and client.again_at <= time.monotonic():
                with contextlib.suppress(OSError):
                    client.connect(selector)
        for key, events in selector.select(0.05):
            if key.data is None:
                print(json.dumps(counts), flush=True)
                return
            key.data.turn(selector, events)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
