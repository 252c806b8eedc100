"""The daemon's HTTP/1.1 server: non-blocking sockets in the daemon's own loop, no thread.

A client cannot slow the loop: one request a call-back, answers written as the socket takes them, and every connection
has a deadline. A client cannot make it grow: connections, headers, bodies and what is read at once are bounded.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from moetuned.api import listeners
from moetuned.api.errors import ListenError
from moetuned.api.routes import Caller, Handler, Remember, Routes, error_answer
from moetuned.api.wire import Answer, Wire, WireError
from moetuned.schema.capability import Capabilities
from moetuned.schema.config import Api
from moetuned.schema.event import KeptEvents
from moetuned.schema.explanation import Explanations
from moetuned.schema.history import Histories
from moetuned.schema.relief import ReliefPlans
from moetuned.schema.snapshot import Snapshot

if TYPE_CHECKING:
    from moetuned.schema.alert_view import AlertsAnswer

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
MAX_TCP_CONNECTIONS = 40
"""The rest is kept for the Unix socket, so that a flood of the TCP port cannot lock moetunectl out."""
MAX_WAITING_BYTES = 4 << 20
"""Of answers that their clients have not taken yet. Half of it may wait for the TCP port."""
_LARGE_BYTES = 32 << 10
TCP_AGAIN_SECONDS = 60.0
REQUEST_SECONDS = 5.0
IDLE_SECONDS = 15.0
WRITE_SECONDS = 15.0
LINGER_SECONDS = 2.0
STUCK_SECONDS = 1.0
"""On loopback a request comes, and an answer goes, in far less: who takes longer gives way to others when there is no more room."""
LINGER_BYTES = 256 << 10
REQUESTS_A_CONNECTION = 1000
_READ_BYTES = 16 << 10
_ACCEPTS_A_CALL = 16
_FULL = error_answer(503, "Too many connections; try again in a moment.")
_TOO_MUCH = error_answer(503, "Too many large answers wait to be read; try again in a moment.")


class _Listener(msgspec.Struct):
    socket: socket.socket
    transport: Literal["unix", "tcp"]
    paused: bool = False


class _Connection(msgspec.Struct, eq=False):
    """One client. `after` says what follows once `out` is written; `again`: bytes of a next request wait already.

    It is dropped at `deadline`, which was set at `since` (monotonic seconds).
    """

    socket: socket.socket
    caller: Caller
    wire: Wire
    since: float
    deadline: float
    state: Literal["reading", "idle", "writing", "lingering"] = "reading"
    out: deque[memoryview] = msgspec.field(default_factory=deque)
    after: Literal["read", "next", "close", "linger"] = "read"
    again: bool = False
    drained_bytes: int = 0
    requests: int = 0
    interest: int = selectors.EVENT_READ


class ApiServer:
    """Serves `Routes` on the sockets of `config`; raises `ListenError` from the constructor when the Unix socket cannot be had.

    Without the TCP port everything else goes on: `note` says so, and it is tried again every minute.
    """

    def __init__(
        self,
        config: Api,
        snapshot: Callable[[], Snapshot | None],
        events: Callable[[str | float | None], KeptEvents],
        handler: Handler,
        monotonic: Callable[[], float] = time.monotonic,
        explain: Callable[[], Explanations] = Explanations,
        relief: Callable[[], ReliefPlans] = ReliefPlans,
        alerts: Callable[[], AlertsAnswer] | None = None,
        history: Remember = lambda _seconds, _backend: Histories(),
        capabilities: Callable[[], Capabilities] = Capabilities,
    ) -> None:
        self._config = config
        self._routes = Routes(snapshot, events, handler, explain, relief, alerts, history, capabilities)
        self._monotonic = monotonic
        self._group = listeners.group_id(config.group)  # once: a look-up over a network would hold up the loop
        self._selector: selectors.BaseSelector | None = None
        self._connections: dict[int, _Connection] = {}
        self._listeners = [_Listener(listeners.listen_unix(config.socket, config.group), "unix")]
        self._identity = listeners.file_identity(config.socket)
        self._host_names = frozenset({"localhost", "127.0.0.1", "[::1]"})
        self.port: int | None = None
        """TCP port, None when TCP is off."""
        self.note: str | None = None
        """Why there is no TCP port though one is wished for, one sentence."""
        self._tcp_at = 0.0
        if config.listen is not False:
            self._open_tcp(config.listen)

    def _open_tcp(self, address: str) -> None:
        try:
            tcp = listeners.listen_tcp(address)
        except ListenError as error:
            if str(error) != self.note:
                log.warning("%s Until then all else goes on, and nobody is answered there.", error)
            self.note, self._tcp_at = str(error), self._monotonic() + TCP_AGAIN_SECONDS
            return
        if self.note is not None:
            log.info("api.listen: listening at %s now", address)
            self.note = None
        host, self.port = tcp.getsockname()[:2]
        self._host_names |= {f"[{host}]" if ":" in host else host}
        self._listeners.append(_Listener(tcp, "tcp"))
        if self._selector is not None:
            self._selector.register(tcp, selectors.EVENT_READ, partial(self._accept, self._listeners[-1]))

    def register(self, selector: selectors.BaseSelector) -> None:
        """Start serving: every descriptor is registered with a call-back `callback(ready_events)` as its data."""
        self._selector = selector
        for listener in self._listeners:
            selector.register(listener.socket, selectors.EVENT_READ, partial(self._accept, listener))

    def service(self, now: float) -> None:
        """Enforce time-outs; call it about once a second. `now` is monotonic seconds."""
        for connection in [item for item in self._connections.values() if item.deadline <= now]:
            if connection.state == "reading" and not connection.wire.idle:
                pieces, _ = connection.wire.respond(error_answer(408, "The request took too long."), close=True)
                with contextlib.suppress(OSError):
                    connection.socket.send(b"".join(pieces))
            self._drop(connection)
        if self.note is not None and self._config.listen is not False and now >= self._tcp_at:
            self._open_tcp(self._config.listen)
        for listener in self._listeners:
            if listener.paused and self._selector is not None:
                listener.paused = False
                self._selector.register(listener.socket, selectors.EVENT_READ, partial(self._accept, listener))

    def close(self) -> None:
        """Stop serving and remove the socket file."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        for listener in self._listeners:
            self._unregister(listener.socket)
            listener.socket.close()
        self._listeners.clear()
        listeners.unlink_own(self._config.socket, self._identity)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def _unregister(self, sock: socket.socket) -> None:
        if self._selector is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(sock)

    def _accept(self, listener: _Listener, _events: int) -> None:
        for _ in range(_ACCEPTS_A_CALL):
            try:
                client, _address = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    # the listener stays readable: stop looking until the next `service`
                    listener.paused = True
                    self._unregister(listener.socket)
                    log.warning("cannot accept a client: %s", error.strerror)
                    return
                continue  # this client is gone already
            self._admit(client, listener.transport)

    def _admit(self, client: socket.socket, transport: Literal["unix", "tcp"]) -> None:
        client.setblocking(False)
        if transport == "tcp":
            with contextlib.suppress(OSError):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._has_room(transport):
            pieces, _ = Wire().respond(_FULL, close=True)
            with contextlib.suppress(OSError):
                client.send(b"".join(pieces))
            client.close()
            return
        try:
            acting = transport == "unix" and listeners.may_act(listeners.peer_credentials(client), self._group)
        except OSError:
            client.close()
            return
        connection = _Connection(
            socket=client,
            caller=Caller(transport, acting, self._config.group, self._host_names),
            wire=Wire(),
            since=(now := self._monotonic()),
            deadline=now + REQUEST_SECONDS,
        )
        self._connections[client.fileno()] = connection
        assert self._selector is not None
        self._selector.register(client, selectors.EVENT_READ, partial(self._ready, connection))

    def _has_room(self, transport: str) -> bool:
        """Whether one more may come; an idle keep-alive connection gives its place to a new one, or else one that is stuck."""
        if self._is_full(transport):
            late = self._monotonic() - STUCK_SECONDS
            giving_way = [
                item
                for item in self._connections.values()
                if (item.state == "idle" or item.since <= late)
                and (transport == "unix" or item.caller.transport == "tcp")
            ]
            if giving_way:
                self._drop(min(giving_way, key=lambda item: (item.state != "idle", item.since)))
        return not self._is_full(transport)

    def _is_full(self, transport: str) -> bool:
        tcp = sum(item.caller.transport == "tcp" for item in self._connections.values())
        return len(self._connections) >= MAX_CONNECTIONS or (transport == "tcp" and tcp >= MAX_TCP_CONNECTIONS)

    def _ready(self, connection: _Connection, _events: int) -> None:
        try:
            if connection.state == "lingering":
                self._linger(connection)
            elif connection.out:
                self._flush(connection)
            else:
                if connection.again:
                    connection.again = False
                elif not self._receive(connection):
                    return
                self._advance(connection)
        except OSError as error:  # the client is gone
            log.debug("client dropped: %s", error)
            self._drop(connection)

    def _receive(self, connection: _Connection) -> bool:
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        if connection.state == "idle" and data:
            connection.state = "reading"
            self._give(connection, REQUEST_SECONDS)
        connection.wire.receive(data)
        return True

    def _advance(self, connection: _Connection) -> None:
        """Answer at most one request, so that no client keeps the loop."""
        try:
            request = connection.wire.next_request()
        except WireError as error:
            self._answer(connection, error_answer(error.status, str(error)), broken=True)
            return
        if request is not None:
            answer = self._routes.answer(request, connection.caller)
            self._answer(connection, answer if self._may_wait(connection, answer) else _TOO_MUCH)
        elif connection.wire.client_closed:
            self._drop(connection)
        else:
            if go_on := connection.wire.continue_bytes():
                connection.out.append(memoryview(go_on))
                connection.after = "read"
            self._flush(connection)

    def _may_wait(self, connection: _Connection, answer: Answer) -> bool:
        """Whether there is memory for one more answer, should its client be slow; a small one always may."""
        if len(answer.body) < _LARGE_BYTES:
            return True
        waiting = sum(len(piece) for other in self._connections.values() for piece in other.out)
        most = MAX_WAITING_BYTES if connection.caller.transport == "unix" else MAX_WAITING_BYTES // 2
        return not waiting or waiting + len(answer.body) <= most

    def _answer(self, connection: _Connection, answer: Answer, *, broken: bool = False) -> None:
        connection.requests += 1
        last = broken or connection.requests >= REQUESTS_A_CONNECTION
        pieces, reusable = connection.wire.respond(answer, close=last)
        connection.out.extend(memoryview(piece) for piece in pieces)
        if broken:
            connection.after = "linger"
        else:
            connection.after = "next" if reusable and not last else "close"
        connection.state = "writing"
        self._give(connection, WRITE_SECONDS)
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        """Write what the socket takes now; when all is written go on to what comes after."""
        out = connection.out
        while out:
            try:
                sent = connection.socket.send(out[0])
            except BlockingIOError:
                break
            if sent == len(out[0]):
                out.popleft()
            else:
                out[0] = out[0][sent:]
        if not out:
            self._written(connection)
        if connection.socket.fileno() >= 0:
            self._watch(connection)

    def _give(self, connection: _Connection, seconds: float) -> None:
        connection.since = self._monotonic()
        connection.deadline = connection.since + seconds

    def _written(self, connection: _Connection) -> None:
        match connection.after:
            case "next":
                connection.again = connection.wire.buffered
                connection.state = "reading" if connection.again else "idle"
                self._give(connection, REQUEST_SECONDS if connection.again else IDLE_SECONDS)
                connection.after = "read"
            case "close":
                self._drop(connection)
            case "linger":
                # closing with unread bytes would reset the connection and destroy the answer on its way
                connection.socket.shutdown(socket.SHUT_WR)
                connection.state = "lingering"
                self._give(connection, LINGER_SECONDS)
            case _:
                pass

    def _linger(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        connection.drained_bytes += len(data)
        if not data or connection.drained_bytes > LINGER_BYTES:
            self._drop(connection)

    def _watch(self, connection: _Connection) -> None:
        interest = selectors.EVENT_WRITE if connection.out or connection.again else selectors.EVENT_READ
        if interest != connection.interest and self._selector is not None:
            connection.interest = interest
            self._selector.modify(connection.socket, interest, partial(self._ready, connection))

    def _drop(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        self._unregister(connection.socket)
        connection.socket.close()
