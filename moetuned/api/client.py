"""Small blocking client of the daemon's Unix socket, for moetunectl. Answers are bounded, typed, and never waited for long."""

from __future__ import annotations

import errno
import http.client
import socket
import time
from typing import TypeVar
from urllib.parse import quote

import msgspec

from moetuned.api.errors import DaemonError, DaemonRefused, DaemonUnreachable
from moetuned.api.socket_path import DEFAULT_SOCKET
from moetuned.schema.event import Event
from moetuned.schema.explanation import Explanations
from moetuned.schema.relief import ReliefPlans
from moetuned.schema.snapshot import Snapshot

TIMEOUT_SECONDS = 5.0
ANSWER_LIMIT_BYTES = 8 << 20

T = TypeVar("T")


class _Events(msgspec.Struct):
    events: list[Event]


class _Failure(msgspec.Struct):
    error: str = ""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket. The time-out covers the whole exchange, not each read."""

    def __init__(self, path: str, timeout_seconds: float) -> None:
        super().__init__("localhost")
        self._path = path
        self._deadline = time.monotonic() + timeout_seconds

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.arm()
        self.sock.connect(self._path)

    def arm(self) -> None:
        """Let the next wait last no longer than what is left. Raises TimeoutError."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if self.sock is not None:
            self.sock.settimeout(left)


class Client:
    """Asks the daemon at `path`. Every method raises DaemonUnreachable, DaemonRefused or DaemonError."""

    def __init__(self, path: str = DEFAULT_SOCKET, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds

    def status(self) -> Snapshot:
        """The daemon's last Snapshot."""
        return self._decode(self.request("GET", "/v1/status"), Snapshot)

    def events(self, since: str | None = None) -> list[Event]:
        """Events after the id `since` (None: all that the daemon keeps), oldest first."""
        query = "" if since is None else f"?since={quote(since, safe='')}"
        return self._decode(self.request("GET", f"/v1/events{query}"), _Events).events

    def explain(self, backend: str | None = None) -> Explanations:
        """Why the verdicts are what they are now, of one backend or of all."""
        query = "" if backend is None else f"?backend={quote(backend, safe='')}"
        return self._decode(self.request("GET", f"/v1/explain{query}"), Explanations)

    def relief(self, backend: str | None = None) -> ReliefPlans:
        """What relief would do now, for one backend or for all."""
        query = "" if backend is None else f"?backend={quote(backend, safe='')}"
        return self._decode(self.request("GET", f"/v1/relief{query}"), ReliefPlans)

    def post(self, path: str, payload: object = None) -> object:
        """Ask for an action; returns the decoded JSON of the answer."""
        return self._decode(self.request("POST", path, msgspec.json.encode(payload or {})), object)

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Body of a good answer, at most 8 MiB."""
        connection = _UnixConnection(self._path, self._timeout_seconds)
        try:
            connection.request(method, path, body=body, headers={"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            content = _read(connection, answer)
        except OSError as error:
            raise self._unreachable(error) from error
        except http.client.HTTPException as error:
            raise DaemonError(f"What answers at {self._path} is no moetuned: {type(error).__name__}.") from error
        finally:
            connection.close()
        if answer.status >= 400:
            sentence = self._decode(content, _Failure).error or f"The daemon answered {answer.status}."
            raise (DaemonRefused if answer.status in (401, 403) else DaemonError)(sentence)
        return content

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
                return DaemonUnreachable(f"moetuned is not running (no socket at {self._path}); {start}.")
            case errno.ECONNREFUSED:
                return DaemonUnreachable(f"moetuned is not running (the socket {self._path} is left over); {start}.")
            case errno.EACCES | errno.EPERM:
                return DaemonRefused(
                    f"You may not use {self._path}; run this with sudo, or as a member of the socket's group."
                )
        if isinstance(error, TimeoutError):
            return DaemonUnreachable(
                f"moetuned did not answer at {self._path} within {self._timeout_seconds:g} s; "
                "it hangs or the machine is very busy: try again, then look at its log."
            )
        return DaemonUnreachable(f"moetuned cannot be reached at {self._path}: {error.strerror or error}.")


def _read(connection: _UnixConnection, answer: http.client.HTTPResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        connection.arm()
        piece = answer.read1(1 << 16)
        if not piece:
            return b"".join(pieces)
        size += len(piece)
        if size > ANSWER_LIMIT_BYTES:
            raise DaemonError(f"The daemon's answer is longer than {ANSWER_LIMIT_BYTES >> 20} MiB.")
        pieces.append(piece)
