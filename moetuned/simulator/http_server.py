"""The stand-in's HTTP side: llama-server's endpoints over the engine, one thread a connection."""

from __future__ import annotations

import itertools
import json
import select
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from moetuned.simulator import answers
from moetuned.simulator.answers import RequestError
from moetuned.simulator.engine import Engine, Task
from moetuned.simulator.slot_action import slot_action

_MAX_BODY_BYTES = 8 << 20


class Service:
    """What the handlers need: the engine once the model is loaded, and how the server was started."""

    def __init__(
        self,
        model: str,
        *,
        metrics: bool,
        slots: bool,
        default_predict: int,
        slot_directory: str = "",
        flaky_health: int = 0,
    ) -> None:
        """`flaky_health`: every so many requests for /health are answered as if it loaded; 0: none."""
        self.model = model
        self.metrics = metrics
        self.slots = slots
        self.default_predict = default_predict
        self.slot_directory = slot_directory
        self.engine: Engine | None = None
        self._healths = itertools.count(1)
        self._flaky_health = flaky_health

    def ready(self) -> Engine:
        """The engine; raises RequestError 503 while the model loads."""
        if self.engine is None:
            raise RequestError(503, "unavailable_error", "Loading model")
        return self.engine

    def health(self) -> dict[str, str]:
        """Answer to /health; raises RequestError 503 when it is its turn."""
        if self._flaky_health and next(self._healths) % self._flaky_health == 0:
            raise RequestError(503, "unavailable_error", "Loading model")
        return {"status": "ok"}


class Listener(ThreadingHTTPServer):
    """Listens at once; raises OSError when the address cannot be had."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, service: Service, timeout_seconds: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.service = service
        self.timeout_seconds = timeout_seconds
        super().__init__((host, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle is none of our business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = answers.BUILD_INFO
    sys_version = ""
    # Head and body are two writes; with Nagle's algorithm the second would wait 40 ms for the first one's acknowledgement.
    disable_nagle_algorithm = True
    server: Listener

    def setup(self) -> None:
        self.request.settimeout(self.server.timeout_seconds)
        super().setup()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the name is the base class's
        """Requests are not logged: a daemon asks every second."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self._answer(lambda: self._get(path))

    def do_POST(self) -> None:
        path, _, query = self.path.partition("?")
        self._answer(lambda: self._post(path, query))

    def _answer(self, make: Any) -> None:
        try:
            status, body = 200, make()
        except RequestError as error:
            status, body = error.status, error.body
        if body is None:
            self.close_connection = True
            return
        data = body.encode() if isinstance(body, str) else json.dumps(body, separators=(",", ":")).encode()
        self.send_response(status)
        kind = "text/plain; version=0.0.4" if isinstance(body, str) else "application/json; charset=utf-8"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _get(self, path: str) -> Any:
        service = self.server.service
        engine = service.ready()
        if path in ("/health", "/v1/health"):
            return service.health()
        if path == "/slots":
            if not service.slots:
                raise _off("slots", "--slots")
            return engine.slots()
        if path == "/metrics":
            if not service.metrics:
                raise _off("metrics", "--metrics")
            return answers.metrics_text(*engine.counters())
        if path == "/props":
            return answers.props(engine.plan, service.model, metrics=service.metrics, slots=service.slots)
        if path in ("/v1/models", "/models"):
            entry = {"id": service.model, "object": "model", "owned_by": answers.BUILD_INFO}
            return {"object": "list", "data": [entry]}
        raise RequestError(404, "not_found_error", "File Not Found")

    def _post(self, path: str, query: str) -> Any:
        body = self._body()
        service = self.server.service
        engine = service.ready()
        if path.startswith("/slots/"):
            return slot_action(engine, service.slot_directory, path.removeprefix("/slots/"), query, body)
        if path in ("/completion", "/completions"):
            task = answers.completion_task(body, engine.plan, service.default_predict)
            return answers.completion_answer(task, service.model) if self._wait_for(engine, task) else None
        if path in ("/v1/chat/completions", "/chat/completions"):
            task = answers.chat_task(body, engine.plan, service.default_predict)
            return answers.chat_answer(task, service.model, int(time.time())) if self._wait_for(engine, task) else None
        raise RequestError(404, "not_found_error", "File Not Found")

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "")
        if not text.isascii() or not text.isdigit() or int(text) > _MAX_BODY_BYTES:
            self.close_connection = True
            raise RequestError(
                413, "invalid_request_error", f"a body needs a Content-Length of at most {_MAX_BODY_BYTES}"
            )
        return self.rfile.read(int(text))

    def _wait_for(self, engine: Engine, task: Task) -> bool:
        """Whether the task was finished; False when the client went away, and the task with it."""
        engine.submit(task)
        while not task.finished.wait(0.25):
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                engine.cancel(task)
                return False
        return True


def _off(what: str, flag: str) -> RequestError:
    return RequestError(
        501, "not_supported_error", f"This server does not support {what} endpoint. Start it with `{flag}`"
    )
