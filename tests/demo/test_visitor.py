"""Somebody who asks, against a tiny server that answers what the test wants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from moetuned.demo import visitor as module
from moetuned.demo.visitor import PROMPT_TOKENS, TOKENS, TOPIC, Visitor, request_body
from moetuned.simulator.topics import topic_of_text

GOOD = (200, json.dumps({"timings": {"predicted_n": 96}}).encode())


class Backend(ThreadingHTTPServer):
    """Answers `answer`; None: nothing at all until `release` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: tuple[int, bytes] | None = GOOD
        self.asked: list[tuple[str, Any]] = []
        self.was_asked = threading.Event()
        self.release = threading.Event()

    def handle_error(self, *what: object) -> None:
        """A visitor that gave up is no error."""


class Handler(BaseHTTPRequestHandler):
    server: Backend
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.server.asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.server.was_asked.set()
        if self.server.answer is None:
            self.server.release.wait(60)
            return
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *what: object) -> None:
        """Says nothing."""


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def visitor(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[Visitor]:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(module, "REFUSED_PAUSE_SECONDS", 0.0)
    made = Visitor(backend.server_port)
    yield made
    made.stop()


def until(visitor: Visitor, answered: int = 0, refused: int = 0) -> None:
    """The limit only ends a test that would otherwise hang."""
    limit = time.monotonic() + 20
    while visitor.answered < answered or visitor.refused < refused:
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_it_asks_again_and_again_about_one_topic(backend: Backend, visitor: Visitor) -> None:
    visitor.start()
    until(visitor, answered=3)
    visitor.stop()
    assert visitor.refused == 0
    assert visitor.tokens_per_second is not None
    assert visitor.tokens_per_second > 0
    assert [path for path, _ in backend.asked[:3]] == ["/completion"] * 3
    assert [body["seed"] for _, body in backend.asked[:3]] == [0, 1, 2]
    assert len({body["prompt"] for _, body in backend.asked[:3]}) == 3


@pytest.mark.parametrize(
    "answer",
    [(503, b"{}"), (200, b"{}"), (200, b"[]"), (200, b'{"timings": []}'), (200, b'{"timings": {"predicted_n": null}}'), (200, b"\xff")],
    ids=["loading", "nothing", "list", "timings", "null", "no text"],
)  # fmt: skip
def test_no_good_answer_is_refused_and_it_goes_on(
    backend: Backend, visitor: Visitor, answer: tuple[int, bytes]
) -> None:
    backend.answer = answer
    visitor.start()
    until(visitor, refused=1)
    backend.answer = GOOD
    until(visitor, answered=1)


def test_nobody_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    with Backend() as server:
        port = server.server_port
    visitor = Visitor(port)
    visitor.start()
    until(visitor, refused=1)
    visitor.stop()
    assert visitor.answered == 0


def test_it_stops_in_the_middle_of_a_request(backend: Backend, visitor: Visitor) -> None:
    backend.answer = None
    visitor.start()
    assert backend.was_asked.wait(20)
    visitor.stop()
    assert not visitor._thread.is_alive()
    assert (visitor.answered, visitor.refused) == (0, 0), "given up, not refused"


def test_one_that_never_started_can_be_stopped() -> None:
    Visitor(1).stop()


def test_a_request_stays_with_the_topic_and_is_never_answered_from_a_cache() -> None:
    for number in range(3):
        body = request_body(number)
        prompt = str(body["prompt"])
        assert topic_of_text(prompt.encode()) == TOPIC
        assert len(prompt) == PROMPT_TOKENS
        assert (body["n_predict"], body["ignore_eos"], body["cache_prompt"]) == (TOKENS, True, False)
