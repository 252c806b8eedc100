"""Somebody who talks to the backend about one topic, one request after the other, in a thread of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time

from moetuned.simulator.topics import prompt_for_topic

TOPIC = 1
PROMPT_TOKENS = 32
TOKENS = 96
PAUSE_SECONDS = 0.1
REFUSED_PAUSE_SECONDS = 0.5
_ANSWER_LIMIT_BYTES = 1 << 20


class Visitor:
    """Counts what it is answered: `answered`, `refused` (while the backend restarts), `tokens_per_second` of the last."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="visitor", daemon=True)
        self.answered = 0
        self.refused = 0
        self.tokens_per_second: float | None = None

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a request under way is given up."""
        self._stop.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # a close would not wake the thread that reads
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                self.tokens_per_second = self._ask(number)
                self.answered += 1
            except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
                if self._stop.is_set():
                    return  # given up by us, not refused
                self.refused += 1
                self._stop.wait(REFUSED_PAUSE_SECONDS)
            number += 1

    def _ask(self, number: int) -> float:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=180)
        begun = time.monotonic()
        try:
            connection.connect()
            self._socket = connection.sock
            if self._stop.is_set():
                raise ConnectionAbortedError
            body = json.dumps(request_body(number))
            connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read(_ANSWER_LIMIT_BYTES)
            if answer.status != 200:
                raise ValueError(f"HTTP {answer.status}")
            predicted = json.loads(content)["timings"]["predicted_n"]
        finally:
            connection.close()
        return float(predicted) / max(time.monotonic() - begun, 1e-6)


def request_body(number: int) -> dict[str, object]:
    """A completion about one topic; what the made models answer stays with the topic of the prompt."""
    return {
        "prompt": prompt_for_topic(TOPIC, PROMPT_TOKENS, number),
        "n_predict": TOKENS,
        "ignore_eos": True,
        "cache_prompt": False,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": number,
    }
