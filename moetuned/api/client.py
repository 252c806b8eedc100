"""Small blocking client of the daemon's Unix socket, for moetunectl. Answers are bounded, typed, and never waited for long."""

from __future__ import annotations

import errno
import socket
import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from moetuned.api.errors import DaemonError, DaemonRefused, DaemonUnreachable
from moetuned.api.socket_path import DEFAULT_SOCKET
from moetuned.parse.http_response import HEAD_LIMIT_BYTES, Head, HttpError, parse_body, parse_head
from moetuned.schema.event import Event, KeptEvents
from moetuned.schema.snapshot import Snapshot

if TYPE_CHECKING:  # what only some commands ask for is imported where it is asked for
    from moetuned.schema.alert_view import AlertsAnswer, AlertTestAnswer
    from moetuned.schema.capability import Capabilities
    from moetuned.schema.explanation import Explanations
    from moetuned.schema.history import Histories
    from moetuned.schema.relief import ReliefPlans

TIMEOUT_SECONDS = 5.0
ANSWER_LIMIT_BYTES = 8 << 20
_AGAIN_SECONDS = 0.01

T = TypeVar("T")


class _Failure(msgspec.Struct):
    error: str = ""


class Client:
    """Asks the daemon at `path`. Every method raises DaemonUnreachable, DaemonRefused or DaemonError."""

    def __init__(self, path: str = DEFAULT_SOCKET, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds

    def status(self) -> Snapshot:
        """The daemon's last Snapshot."""
        return self._decode(self.request("GET", "/v1/status"), Snapshot)

    def events(self, since: str | float | None = None) -> list[Event]:
        """Events after the id or the Unix time `since` (None: all that the daemon keeps in memory), oldest first."""
        return list(self.kept_events(since).events)

    def kept_events(self, since: str | float | None = None) -> KeptEvents:
        """The same, with whether that is all there ever was and where the rest is."""
        text = f"{since:.6f}" if isinstance(since, float) else since
        return self._decode(self.request("GET", "/v1/events" + _query(since=text)), KeptEvents)

    def alerts(self) -> AlertsAnswer:
        """How the alert sinks are."""
        from moetuned.schema.alert_view import AlertsAnswer

        return self._decode(self.request("GET", "/v1/alerts"), AlertsAnswer)

    def test_alerts(self, sink: str | None = None) -> AlertTestAnswer:
        """Have a test sent to the alert sink of this name, or to all (None)."""
        from moetuned.schema.alert_view import AlertTestAnswer

        body = msgspec.json.encode({"sink": sink})
        return self._decode(self.request("POST", "/v1/alerts/test", body), AlertTestAnswer)

    def explain(self, backend: str | None = None) -> Explanations:
        """Why the verdicts are what they are now, of one backend or of all."""
        from moetuned.schema.explanation import Explanations

        return self._decode(self.request("GET", "/v1/explain" + _query(backend=backend)), Explanations)

    def history(self, seconds: int | None = None, backend: str | None = None) -> Histories:
        """The last `seconds` (1 to 600; None: all that is kept) of one backend or of all."""
        from moetuned.schema.history import Histories

        asked = {"seconds": None if seconds is None else str(seconds), "backend": backend}
        return self._decode(self.request("GET", "/v1/history" + _query(**asked)), Histories)

    def relief(self, backend: str | None = None) -> ReliefPlans:
        """What relief would do now, for one backend or for all."""
        from moetuned.schema.relief import ReliefPlans

        return self._decode(self.request("GET", "/v1/relief" + _query(backend=backend)), ReliefPlans)

    def capabilities(self) -> Capabilities:
        """What the daemon's self-test found."""
        from moetuned.schema.capability import Capabilities

        return self._decode(self.request("GET", "/v1/capabilities"), Capabilities)

    def metrics(self, *, openmetrics: bool = False) -> bytes:
        """All metrics, as they are scraped: in the text format of Prometheus, or in OpenMetrics."""
        return self.request("GET", "/metrics", accept="application/openmetrics-text" if openmetrics else "text/plain")

    def post(self, path: str, payload: object = None) -> object:
        """Ask for an action; returns the decoded JSON of the answer."""
        return self._decode(self.request("POST", path, msgspec.json.encode(payload or {})), object)

    def request(self, method: str, path: str, body: bytes | None = None, *, accept: str | None = None) -> bytes:
        """Body of a good answer, at most 8 MiB."""
        deadline = time.monotonic() + self._timeout_seconds
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                self._connect(connection, deadline)
                connection.sendall(_request(method, path, body, accept))
                head, content = _receive(connection, deadline)
        except OSError as error:
            raise self._unreachable(error) from error
        except HttpError as error:
            raise DaemonError(f"What answers at {self._path} is no moetuned: {error}.") from error
        if head.status >= 400:
            sentence = self._decode(content, _Failure).error or f"The daemon answered {head.status}."
            raise (DaemonRefused if head.status in (401, 403) else DaemonError)(sentence)
        return content

    def _connect(self, connection: socket.socket, deadline: float) -> None:
        """Raises OSError. A daemon that has more clients waiting than it takes at once is tried again (EAGAIN, unix(7))."""
        while True:
            _arm(connection, deadline)
            try:
                connection.connect(self._path)
            except BlockingIOError:
                time.sleep(_AGAIN_SECONDS)
            else:
                return

    def _decode(self, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DaemonError(
                f"What answers at {self._path} is no moetuned of this version ({error}); "
                "after an upgrade restart it with: systemctl restart moetuned."
            ) from error

    def _unreachable(self, error: OSError) -> DaemonError:
        start = "start it with: systemctl start moetuned (or: moetuned run)"
        match error.errno:
            case errno.ENOENT | errno.ENOTDIR:
                return DaemonUnreachable(f"moetuned is not running (no socket at {self._path}); {start}.", self._path)
            case errno.ECONNREFUSED:
                return DaemonUnreachable(
                    f"moetuned is not running (the socket {self._path} is left over); {start}.", self._path
                )
            case errno.EACCES | errno.EPERM:
                from moetuned.api.socket_access import who_may  # only who may not pays for it

                return DaemonRefused(
                    f"You may not talk to moetuned (its socket is {self._path}): {who_may(self._path)}"
                )
        if isinstance(error, TimeoutError):
            return DaemonUnreachable(
                f"moetuned did not answer at {self._path} within {self._timeout_seconds:g} s; "
                "it hangs or the machine is very busy: try again, then look at its log."
            )
        return DaemonUnreachable(f"moetuned cannot be reached at {self._path}: {error.strerror or error}.")


def _query(**asked: str | None) -> str:
    known = {key: value for key, value in asked.items() if value is not None}
    if not known:
        return ""
    from urllib.parse import quote  # what asks without a query starts faster without it

    return "?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in known.items())


def _request(method: str, path: str, body: bytes | None, accept: str | None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    if accept is not None:
        lines.append(f"Accept: {accept}")
    if body is not None or method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body or b'')}"]
    return "\r\n".join((*lines, "", "")).encode("ascii") + (body or b"")


def _arm(connection: socket.socket, deadline: float) -> None:
    """Let the next wait last no longer than what is left of the whole exchange. Raises TimeoutError."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


def _receive(connection: socket.socket, deadline: float) -> tuple[Head, bytes]:
    """The answer. Raises OSError, HttpError, DaemonError."""
    data = bytearray()
    head: Head | None = None
    while True:
        _arm(connection, deadline)
        piece = connection.recv(1 << 16)
        data += piece
        if not piece and head is None:
            raise HttpError("it closed the connection without an answer")
        head = head or parse_head(data)
        if max(len(data) - HEAD_LIMIT_BYTES, 0 if head is None else head.length or 0) > ANSWER_LIMIT_BYTES:
            raise DaemonError(f"The daemon's answer is longer than {ANSWER_LIMIT_BYTES >> 20} MiB.")
        if head is not None and (body := parse_body(head, data, not piece, ANSWER_LIMIT_BYTES)) is not None:
            return head, body
