"""Asks a backend on this machine how it is, at the paths of its kind, from a worker thread: /health, /props, /slots, /metrics.

The answers come from a process we do not trust: loopback only, no proxies, no redirects, a deadline for each answer as a whole, and a
bound on its size. A path that gave no good answer holds "!reason": "!503 …" while the model loads, "!timeout" when it is too busy to
answer (builds of llama-server before b10865 answer /slots between batches only), "!refused" when nothing listens.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import socket
import time
from urllib.parse import urlsplit

from moetuned.parse.backend_http import LLAMA_PATHS
from moetuned.parse.http_response import HEAD_LIMIT_BYTES, Head, HttpError, parse_body, parse_head
from moetuned.schema.backend_abilities import HttpPaths

BODY_LIMIT_BYTES = 256 << 10
_NEVER_STATUSES = (401, 403, 404, 405, 501)
"""A server that answers so will do so until it is restarted."""
_OUR_LACK = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""This process, or this machine, has no descriptor or no memory left to ask with (socket(2))."""


class Probe:
    """One backend's HTTP, over one connection that is kept. Used by one thread at a time."""

    def __init__(
        self, url: str, *, may_sleep: bool = True, timeout_seconds: float = 1.0, paths: HttpPaths = LLAMA_PATHS
    ) -> None:
        """`url` as http://127.0.0.1:8080, perhaps with a path. Raises ValueError when it is not loopback HTTP.

        `may_sleep`: the server may unload its model when idle (--sleep-idle-seconds), or that is not known. Asking /slots or
        /metrics would wake such a server, so /props is asked first.
        """
        self._host, self._port, self._prefix = loopback_address(url)
        self._may_sleep = may_sleep
        self._paths = paths
        self._timeout_seconds = timeout_seconds
        self._connection: socket.socket | None = None
        self._never: dict[str, str] = {}
        self._slots = self._metrics = ""
        self._health = ""
        """What /health said when /slots answered last."""

    def poll(self, *, idle: bool = False, slots_last: bool = False) -> dict[str, str]:
        """Body of each path that was asked, or "!reason". Never raises for what the backend does.

        Raises OSError where there is no descriptor or memory left to ask with, which says nothing of the backend.

        `idle`: the backend's process did nothing lately. One that may sleep is then not asked for /slots and /metrics, which count as
        activity there: it would never fall asleep. /metrics is asked again only once something was processed; /health is not while
        /slots answers, which says as much (it is 503 while loading, too). Takes at most three times the timeout.

        `slots_last`: what /slots says is of the end, and one timeout more may be taken. A llama-server answers /metrics between
        batches only: what /slots said before can be a second old then.
        """
        answers = self._poll(idle=idle)
        slots, metrics = self._paths.slots, self._paths.metrics
        if slots_last and slots is not None and metrics in answers and not answers.get(slots, "!").startswith("!"):
            answers[slots] = self._get(slots)
        return answers

    def _poll(self, *, idle: bool) -> dict[str, str]:
        paths = self._paths
        slots = self._get(paths.slots) if self._health and paths.slots is not None else "!"
        if paths.slots is not None and not slots.startswith("!"):
            return self._poll_metrics({paths.health: self._health, paths.slots: slots}, slots)
        asked, self._health = bool(self._health), ""
        answers = {paths.health: self._get(paths.health)}
        if answers[paths.health].startswith("!"):
            return answers
        if self._may_sleep and paths.props is not None:
            answers[paths.props] = self._get(paths.props)
            if idle or not _is_awake(answers[paths.props]):
                return answers
        if paths.slots is None:
            return self._poll_metrics(answers, "")
        slots = answers[paths.slots] = slots if asked else self._get(paths.slots)
        if not slots.startswith("!") and not self._may_sleep:
            self._health = answers[paths.health]
        return self._poll_metrics(answers, slots)

    def _poll_metrics(self, answers: dict[str, str], slots: str) -> dict[str, str]:
        path = self._paths.metrics
        if path is None:
            return answers
        same = self._metrics and slots == self._slots and _nothing_happened(slots)
        metrics = answers[path] = self._metrics if same else self._get(path)
        self._slots, self._metrics = slots, "" if metrics.startswith("!") else metrics
        return answers

    def close(self) -> None:
        """Close the connection; `poll` opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _get(self, path: str) -> str:
        if path in self._never:
            return self._never[path]
        kept = self._connection is not None
        try:
            try:
                return self._ask(path)
            except (ConnectionError, _ClosedError):
                # The server may have closed a connection it kept; a fresh one tells.
                self.close()
                if not kept:
                    raise
                return self._ask(path)
        except TimeoutError:
            self.close()
            return "!timeout"
        except (OSError, HttpError) as error:
            self.close()
            if isinstance(error, OSError) and error.errno in _OUR_LACK:
                raise
            self._never.clear()
            return "!" + _reason(error)

    def _ask(self, path: str) -> str:
        deadline = time.monotonic() + self._timeout_seconds
        connection = self._connection or self._connect()
        connection.settimeout(self._timeout_seconds)
        connection.sendall(request_bytes(self._host, self._port, f"{self._prefix}{path}"))
        head, body = _receive(connection, deadline)
        if not head.keep_alive:
            self.close()
        if head.status != 200:
            answer = f"!{head.status} {head.reason[:80]}"
            if head.status in _NEVER_STATUSES:
                self._never[path] = answer
            return answer
        return body.decode("utf-8", "replace")

    def _connect(self) -> socket.socket:
        self._connection = connect(self._host, self._port, self._timeout_seconds)
        return self._connection


def ask_once(
    url: str, path: str, timeout_seconds: float, *, body: object = None, api_key: str | None = None
) -> tuple[int, str]:
    """Status and body of one answer: to a GET, or to a POST of `body` as JSON. With `api_key` where the server wants one.

    Raises ValueError when `url` is no loopback address, TimeoutError, OSError, HttpError.
    """
    host, port, prefix = loopback_address(url)
    deadline = time.monotonic() + timeout_seconds
    with connect(host, port, timeout_seconds) as connection:
        connection.sendall(request_bytes(host, port, f"{prefix}{path}", body, api_key=api_key, last=True))
        head, data = _receive(connection, deadline)
    return head.status, data.decode("utf-8", "replace")


def request_bytes(
    host: str, port: int, path: str, body: object = None, *, api_key: str | None = None, last: bool = False
) -> bytes:
    """A GET, or a POST of `body` as JSON. `last`: nothing more is asked over its connection."""
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {shown}"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    if api_key is not None:
        lines.append(f"Authorization: Bearer {api_key}")
    if last:
        lines.append("Connection: close")
    return "\r\n".join((*lines, "", "")).encode("ascii") + data


def connect(host: str, port: int, timeout_seconds: float) -> socket.socket:
    """A connection to this machine. Raises TimeoutError, OSError."""
    connection = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_seconds)
        connection.connect((host, port))
    except OSError:
        connection.close()
        raise
    return connection


class _ClosedError(HttpError):
    """The connection was closed before the answer began."""


def _receive(connection: socket.socket, deadline: float) -> tuple[Head, bytes]:
    """One response. Raises TimeoutError at the deadline, however the bytes trickle in; HttpError, OSError."""
    data = bytearray()
    head: Head | None = None
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        chunk = connection.recv(1 << 16)
        if not chunk and head is None:
            raise _ClosedError("it closed the connection without an answer")
        data += chunk
        head = head or parse_head(data)
        if head is not None and (body := parse_body(head, data, not chunk, BODY_LIMIT_BYTES)) is not None:
            return head, body
        if len(data) > 2 * BODY_LIMIT_BYTES + HEAD_LIMIT_BYTES:
            raise HttpError(f"its answer is larger than {BODY_LIMIT_BYTES} bytes")


def loopback_address(url: str) -> tuple[str, int, str]:
    """Host address, port and path prefix of a loopback URL. Raises ValueError for any other."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    plain = parts.path.isascii() and parts.path.isprintable() and " " not in parts.path
    if (
        parts.scheme != "http"
        or not loopback
        or not plain
        or parts.username is not None
        or parts.query
        or parts.fragment
    ):
        raise ValueError(f"{url!r} is no HTTP address on this machine; write e.g. http://127.0.0.1:8080")
    return host, parts.port or 80, parts.path.rstrip("/")


def _nothing_happened(slots: str) -> bool:
    """Whether /slots, which is as it was a moment ago, says that nothing was processed since: each task has another number."""
    text = slots.replace(" ", "")
    return '"id_task":' in text and '"is_processing":true' not in text and '"is_processing":false' in text


def _is_awake(props: str) -> bool:
    """Whether /props says that the model is loaded; one that cannot say is left alone. Old builds never sleep."""
    if props.startswith("!"):
        # Servers that know sleep always answer /props.
        return props[1:4].isdigit()
    return '"is_sleeping":true' not in props.replace(" ", "")


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, OSError):
        return f"unreachable: {error.strerror or type(error).__name__}"
    return f"no HTTP: {error}"
