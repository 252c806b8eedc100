"""Sending a prompt: to scripted servers, and to a real llama.cpp that users ask too."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fakes.server_process import ServerProcess, http, started

from moetuned.decide.prompt_warmup import PromptEnd, PromptSight, PromptStep, PromptWarmup, begin, step
from moetuned.gguf.experts import expert_ranges
from moetuned.host.backend_http import BODY_LIMIT_BYTES, Probe
from moetuned.host.model_files import read_model
from moetuned.host.page_cache import PAGE_BYTES, ResidencyScan
from moetuned.host.page_out import PageOut
from moetuned.host.processes import identify
from moetuned.host.prompt_files import load_prompts
from moetuned.host.prompt_sender import PromptRequest, send_prompt
from moetuned.parse.llama_http import parse_llama_http
from moetuned.schema.model import ByteRange
from moetuned.schema.verdict import MemoryState, Paging, Phase
from moetuned.simulator.make_model import main as make_model

MIB = 1 << 20
LAST = {"content": "", "stop": True, "tokens_predicted": 16, "tokens_evaluated": 27}


class OneAnswer:
    """A server that takes one request and lets the test answer it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def take(self) -> tuple[str, dict[str, object], socket.socket]:
        """Request line and headers, body, connection."""
        connection, _ = self._listener.accept()
        data = b""
        while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < self._length(data):
            data += connection.recv(1 << 16)
        head, _, body = data.partition(b"\r\n\r\n")
        return head.decode(), json.loads(body), connection

    def _length(self, data: bytes) -> int:
        return int(data.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def server() -> Iterator[OneAnswer]:
    one = OneAnswer()
    yield one
    one.close()


def sent(url: str, prompt: str = "hello", tokens: int = 16) -> PromptRequest:
    request = send_prompt(url, prompt, tokens)
    assert isinstance(request, PromptRequest)
    return request


def finish(request: PromptRequest) -> PromptEnd:
    while request.advance() is None:
        assert select.select([request], [], [], 60)[0]
    assert request.end is not None
    return request.end


def chunked(*events: object) -> bytes:
    parts = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_what_is_asked_spoils_no_cache_and_can_be_cancelled(server: OneAnswer) -> None:
    request = sent(server.url + "/llm/", "größer", 5)
    head, body, connection = server.take()
    assert head.startswith("POST /llm/completion HTTP/1.1\r\nHost: 127.0.0.1:")
    assert body == {
        "prompt": "größer",
        "n_predict": 5,
        "cache_prompt": False,
        "stream": True,
        "return_progress": True,
        "temperature": 0.0,
    }
    assert request.advance() is None
    connection.sendall(STREAM)
    assert request.advance() is None
    request.cancel()
    assert request.end == PromptEnd(error="cancelled")
    assert request.fileno() == -1
    assert connection.recv(1) == b""
    assert request.advance() == request.end
    request.cancel()
    connection.close()


def test_a_streamed_answer_is_counted(server: OneAnswer) -> None:
    request = sent(server.url)
    _, _, connection = server.take()
    data = STREAM + chunked({"content": "a", "stop": False}, LAST)
    for at in range(0, len(data), 7):
        connection.sendall(data[at : at + 7])
        request.advance()
    assert finish(request) == PromptEnd(43)
    assert request.fileno() == -1
    connection.close()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "without an answer"),
        (b"SSH-2.0-x\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}", "refused a prompt: 401 Unauthorized"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n", "refused a prompt: 302 Found"),
        (STREAM + chunked({"error": {"code": 500}}), "has no end"),
        (STREAM + b"5\r\ndata:", "in the middle of its answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "is larger than"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (BODY_LIMIT_BYTES + 1), "is larger than"),
    ],
)
def test_hostile_answers_are_errors(server: OneAnswer, data: bytes, error: str) -> None:
    request = sent(server.url)
    _, _, connection = server.take()
    writer = threading.Thread(target=lambda: (connection.sendall(data), connection.close()))
    writer.start()
    assert error in (finish(request).error or "")
    writer.join(20)


def test_nobody_there_is_an_error_and_elsewhere_is_refused(server: OneAnswer) -> None:
    server.close()
    end = send_prompt(server.url, "a", 1)
    assert isinstance(end, PromptEnd)
    assert "cannot be reached: Connection refused" in (end.error or "")
    with pytest.raises(ValueError, match="no HTTP address on this machine"):
        send_prompt("http://192.0.2.1:80", "a", 1)


NEEDS_WHEEL = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="the wheel xllamacpp is not installed"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("model") / "made.gguf")
    assert make_model([path, "--size", str(160 * MIB)]) == 0
    return path


@contextmanager
def serving(model: str, *flags: str) -> Iterator[tuple[ServerProcess, str]]:
    common = ("-m", model, "--port", "0", "-c", "4096", "-t", "2", "--no-repack", "--metrics", "--no-warmup")
    with started("moetuned.xllamacpp_server", *common, *flags) as process:
        yield process, process.wait_for(r"listening on (http://\S+:\d+)")[1]


class Driver:
    """What the daemon does each tick: ask, step, send or cancel."""

    def __init__(self, url: str, prompts: tuple[str, ...], predict_tokens: int) -> None:
        self.url, self.prompts, self.predict_tokens = url, prompts, predict_tokens
        self.probe = Probe(url, may_sleep=False, timeout_seconds=20)
        self.state: PromptWarmup = begin(len(prompts), time.monotonic())
        self.request: PromptRequest | None = None

    def tick(self) -> PromptStep:
        answers = parse_llama_http(self.probe.poll())
        assert answers is not None
        now = time.monotonic()
        busy = any(slot.processing for slot in answers.slots or ())
        phase = Phase.DECODE if busy else Phase.IDLE
        ended = None if self.request is None else self.request.advance()
        seen = PromptSight(phase, Paging.COLD, MemoryState.OK, answers, now)
        stepped = step(self.state, seen, now, ended)
        self.state = stepped.state
        if stepped.cancel and self.request is not None:
            self.request.cancel()
        if stepped.send is not None:
            self.request = sent(self.url, self.prompts[stepped.send], self.predict_tokens)
        return stepped

    def close(self) -> None:
        self.probe.close()
        if self.request is not None:
            self.request.cancel()


def predicted(url: str) -> float:
    bodies = parse_llama_http({"/metrics": http(f"{url}/metrics")[1]})
    assert bodies is not None
    assert bodies.tokens_predicted_total is not None
    return bodies.tokens_predicted_total


@pytest.mark.backend
@NEEDS_WHEEL
@pytest.mark.parametrize("slots", [1, 4])
def test_a_users_request_is_answered_before_ours_ends(model: str, slots: int) -> None:
    with serving(model, "-np", str(slots)) as (_, url):
        driver = Driver(url, ("Once upon a time",), 3900)
        assert driver.tick().send == 0
        answers: list[tuple[int, str]] = []
        user = threading.Thread(
            target=lambda: answers.append(http(f"{url}/completion", {"prompt": "x", "n_predict": 4}))
        )
        user.start()
        while driver.state.outcome is None:
            driver.tick()
        assert "somebody else asks it something" in driver.state.outcome
        user.join(60)
        assert answers[0][0] == 200
        while any(slot["is_processing"] for slot in json.loads(http(f"{url}/slots")[1])):
            pass
        # Ours was given up in the middle, not generated to its end for nobody.
        assert predicted(url) < 2000
        driver.close()


@pytest.mark.backend
@NEEDS_WHEEL
def test_closing_the_connection_frees_the_slot_in_the_middle_of_a_long_prompt(model: str) -> None:
    with serving(model, "-np", "1", "-b", "64", "-ub", "64") as (_, url):
        request = sent(url, "words " * 600, 300)
        while not any(slot["is_processing"] for slot in json.loads(http(f"{url}/slots")[1])):
            pass
        request.cancel()
        assert http(f"{url}/completion", {"prompt": "x", "n_predict": 1})[0] == 200
        # The user's few tokens, and not the 3600 of the prompt that was given up.
        bodies = parse_llama_http({"/metrics": http(f"{url}/metrics")[1]})
        assert bodies is not None
        assert bodies.prompt_tokens_total is not None
        assert bodies.prompt_tokens_total < 1000


@pytest.mark.backend
@NEEDS_WHEEL
def test_a_users_prompt_is_still_cached_after_ours(model: str) -> None:
    with serving(model, "-np", "1") as (_, url):
        prompt = {"prompt": "a long story about a ship " * 20, "n_predict": 2}
        first = json.loads(http(f"{url}/completion", prompt)[1])["timings"]["prompt_n"]
        assert finish(sent(url, "something else", 4)).error is None
        again = json.loads(http(f"{url}/completion", prompt)[1])["timings"]["prompt_n"]
        assert first > 100
        assert again < 10


def expert_bytes(paths: tuple[str, ...], model: str) -> int:
    experts = read_model(model).experts
    assert experts is not None
    scan = ResidencyScan(paths, expert_ranges(experts))
    while not scan.advance(1):
        pass
    assert scan.result is not None, scan.unknown
    return (scan.result.expert_cached or 0) * PAGE_BYTES


@pytest.mark.backend
@NEEDS_WHEEL
@pytest.mark.kernel
def test_the_prompts_bring_experts_in(model: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to page a process out")
    with serving(model, "-np", "1") as (process, url):
        paths = (model,)
        identity = identify(process.process.pid)
        assert identity is not None
        out = PageOut(identity, paths, [ByteRange(0, 0, os.stat(model).st_size)])
        while not out.advance():
            pass
        if out.refused is not None:
            pytest.skip(f"its mapping cannot be paged out: {out.refused}")
        before = expert_bytes(paths, model)
        driver = Driver(url, load_prompts("default")[:8], 4)
        while driver.state.outcome is None:
            driver.tick()
        driver.close()
        assert "all prompts were sent" in driver.state.outcome, driver.state.outcome
        assert driver.state.sent == driver.state.count
        after = expert_bytes(paths, model)
        print(f"experts resident {before >> 20} MiB before, {after >> 20} MiB after {driver.state.outcome}")
        assert after > before + 40 * MIB
