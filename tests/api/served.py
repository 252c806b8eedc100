"""An ApiServer on real sockets, driven by the test's own loop and a clock that only the test moves."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable

import msgspec
from api_examples import event, example_snapshot

from moetuned.api.server import ApiServer
from moetuned.schema.config import Api
from moetuned.schema.event import KeptEvents
from moetuned.schema.history import BackendHistory, Histories
from moetuned.schema.snapshot import Snapshot


class Served:
    """`turn` serves what is ready, as the daemon's loop does; `until` turns until something is true."""

    def __init__(self, directory: str, listen: str | bool = "127.0.0.1:0") -> None:
        self.now = 1000.0
        self.calls: list[tuple[str, object]] = []
        self.snapshot: Snapshot | None = example_snapshot()
        self.path = f"{directory}/api.sock"
        config = msgspec.convert({"socket": self.path, "listen": listen, "group": "no-such-group-here"}, Api)
        self.selector = selectors.DefaultSelector()
        self.remembered: list[tuple[int, str | None]] = []
        self.server = ApiServer(
            config,
            lambda: self.snapshot,
            lambda since: KeptEvents((event("1-2"),)),
            self._handle,
            monotonic=lambda: self.now,
            history=self._remember,
        )
        self.server.register(self.selector)
        self.clients: list[socket.socket] = []

    def _remember(self, seconds, backend):
        self.remembered.append((seconds, backend))
        return Histories(100, 2, (BackendHistory("glm"),))

    def _handle(self, name, payload):
        self.calls.append((name, payload))
        return 200, {"done": name}

    def turn(self, wait: float = 0.0) -> int:
        ready = self.selector.select(wait)
        for key, events in ready:
            if self.selector.get_map().get(key.fd) is key:
                key.data(events)
        return len(ready)

    def until(self, condition: Callable[[], bool]) -> None:
        """The limit only ends a test that would otherwise hang."""
        limit = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < limit, "the server never got there"
            self.turn(0.02)

    def connect(self, transport: str = "tcp", receive_buffer: int | None = None) -> socket.socket:
        client = socket.socket(socket.AF_INET if transport == "tcp" else socket.AF_UNIX)
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.connect(("127.0.0.1", self.server.port) if transport == "tcp" else self.path)
        client.setblocking(False)
        self.clients.append(client)
        return client

    def read_all(self, client: socket.socket) -> bytes:
        """Everything until the server closes; a reset counts as a close."""
        got = bytearray()
        ended = False

        def more() -> bool:
            nonlocal ended
            try:
                data = client.recv(1 << 16)
            except BlockingIOError:
                return False
            except ConnectionError:
                ended = True
                return True
            got.extend(data)
            ended = not data
            return ended

        self.until(more)
        return bytes(got)

    def read_answers(self, client: socket.socket, count: int) -> bytes:
        """Until `count` answers have come (each of ours to GET / ends in a newline after its body)."""
        got = bytearray()

        def more() -> bool:
            try:
                got.extend(client.recv(1 << 16))
            except BlockingIOError:
                pass
            return got.count(b"HTTP/1.1 ") >= count and got.endswith(b"\n") and not got.endswith(b"\r\n")

        self.until(more)
        return bytes(got)

    def ask(self, text: bytes, transport: str = "tcp") -> bytes:
        client = self.connect(transport)
        client.sendall(text)
        return self.read_all(client)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.server.close()
        self.selector.close()
