"""Somebody who asks a backend one request after the other, and knows of each how it ended."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

COMPLETE, CUT_OFF, REFUSED = "complete", "cut off", "refused"
REFUSED_PAUSE_SECONDS = 0.3
_LINE_BYTES = 1 << 20

Body = Callable[[int], dict[str, object]]


@dataclass(frozen=True)
class Outcome:
    """How one request ended; monotonic seconds. `answered`: its answer had begun."""

    begun: float
    ended: float
    kind: str
    answered: bool = False
    why: str = ""


class Asker:
    """Asks until it is stopped, in a thread of its own. `body` makes the JSON of request number N."""

    def __init__(self, port: int, body: Body, pause_seconds: float = 0.05) -> None:
        self._port = port
        self._body = body
        self._pause = pause_seconds
        self._stop = threading.Event()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name=f"asker-{port}", daemon=True)
        self.outcomes: list[Outcome] = []

    def start(self) -> Asker:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask no more; the request under way is given up and not counted."""
        self._stop.set()
        found = self._socket
        if found is not None:
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join(10.0)

    def count(self, kind: str) -> int:
        return sum(one.kind == kind for one in self.outcomes)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._pause):
            outcome = self._ask(number)
            if self._stop.is_set() and outcome.kind != COMPLETE:
                return
            self.outcomes.append(outcome)
            if outcome.kind == REFUSED:
                self._stop.wait(REFUSED_PAUSE_SECONDS)
            number += 1

    def _ask(self, number: int) -> Outcome:
        begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        sent = answered = False

        def outcome(kind: str, why: str = "") -> Outcome:
            return Outcome(begun, time.monotonic(), kind, answered, why)

        try:
            connection.connect()
            self._socket = connection.sock
            body = json.dumps(self._body(number))
            connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
            sent = True
            answer = connection.getresponse()
            if answer.status == 503:
                return outcome(REFUSED, "503")
            answered = True
            if answer.status != 200:
                return outcome(CUT_OFF, f"HTTP {answer.status}")
            return outcome(COMPLETE if _to_its_end(answer) else CUT_OFF, "")
        except (OSError, ValueError, http.client.HTTPException) as error:
            return outcome(CUT_OFF if sent else REFUSED, f"{type(error).__name__}: {error}")
        finally:
            self._socket = None
            connection.close()


def _to_its_end(answer: http.client.HTTPResponse) -> bool:
    """Whether all of the answer came: a stream says so in its last piece, other answers are whole JSON. Raises ValueError."""
    if "event-stream" not in answer.getheader("Content-Type", ""):
        return "content" in json.loads(answer.read())
    whole = False
    while line := answer.readline(_LINE_BYTES):
        if line.startswith(b"data: {"):
            whole = json.loads(line[6:]).get("stop") is True
    return whole
