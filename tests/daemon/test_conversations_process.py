"""A conversation over a restart that frees memory: the next turn reads only what is new, and nothing is left on the disk."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from running import InProcess, free_port, in_process

from moetuned.daemon.relieving import launch_plan
from moetuned.decide.supervision import Stage
from moetuned.schema.action import RestartBackend

pytestmark = pytest.mark.backend
WHEEL = [sys.executable, "-m", "moetuned.xllamacpp_server"]
ASK = """
import json, sys, urllib.request
body = {"prompt": "once upon a time", "n_predict": 100_000, "ignore_eos": True}
try:
    urllib.request.urlopen(sys.argv[1], json.dumps(body).encode(), timeout=120).read()
except Exception:
    sys.exit(3)
"""
STAND_IN = [sys.executable, "-m", "moetuned.simulator", "serve"]
PROGRAMS = {"stand-in": STAND_IN, "wheel": WHEEL}
if os.environ.get("LLAMA_SERVER"):
    PROGRAMS["LLAMA_SERVER"] = shlex.split(os.environ["LLAMA_SERVER"])


def config(program: list[str], model: Path, port: int, slots: Path, *more: str) -> dict[str, Any]:
    command = [
        *program,
        "-m",
        "{model}",
        "-c",
        "{context}",
        "--port",
        str(port),
        "--metrics",
        "--no-repack",
        "--parallel",
        "1",
    ]
    return {
        "watch": {"discover": False, "interval": "200ms"},
        "warm": {"enabled": False},
        "backends": [
            {
                "name": "glm",
                "kind": None,
                "model": str(model),
                "url": f"http://127.0.0.1:{port}",
                "context": {"preferred": 8192, "minimum": 1024},
                "supervise": {
                    "by": "process",
                    "command": [*command, "--slot-save-path", str(slots), *more],
                    "log": str(model.parent / f"glm-{port}.log"),
                },
            }
        ],
    }


def ask(port: int, prompt: str, predict: int, key: str | None = None) -> dict[str, Any]:
    body = json.dumps(
        {"prompt": prompt, "n_predict": predict, "ignore_eos": True, "temperature": 0, "cache_prompt": True}
    )
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", body.encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.loads(response.read())


class Asked(threading.Thread):
    """A question that is asked while the daemon turns."""

    def __init__(self, *question: Any) -> None:
        super().__init__(daemon=True)
        self.question = question
        self.answer: dict[str, Any] | None = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = ask(*self.question)
        except OSError:
            self.answer = None


def asked(daemon: InProcess, *question: Any) -> dict[str, Any]:
    thread = Asked(*question)
    daemon.until(lambda _: not thread.is_alive(), "an answer")
    assert thread.answer is not None
    return thread.answer


def supervisor(daemon: InProcess) -> Any:
    watched = daemon.app._roster.get("glm")
    assert watched is not None
    return watched.supervisor


def restart(daemon: InProcess, context: int, seconds: float = 20.0) -> None:
    own = supervisor(daemon)
    own.restart(launch_plan(RestartBackend("glm", context, None, "test"), own.state.plan), seconds=seconds)


def is_known(daemon: InProcess) -> bool:
    watched = daemon.app._roster.get("glm")
    return watched is not None and watched.description is not None and watched.model is not None


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_next_turn_reads_only_what_is_new(tmp_path: Path, small_model: Path, program: str) -> None:
    port, slots = free_port(), tmp_path / "slots"
    slots.mkdir()
    prompt = "a word or two " * 220
    with in_process(tmp_path, config(PROGRAMS[program], small_model, port, slots)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: is_known(daemon), "what it is")
        first = asked(daemon, port, prompt, 8)
        assert first["timings"]["prompt_n"] > 2000
        pid = daemon.view("glm").pid
        restart(daemon, 4096)
        daemon.until(lambda _: "backend_restarted" in daemon.event_names(), "restarted")
        assert daemon.view("glm").pid != pid
        assert "1 conversation goes on" in daemon.snapshot.events[-1].message
        second = asked(daemon, port, prompt + first["content"] + " and then?", 8)
        print(program, first["timings"], second["timings"])
        assert second["timings"]["cache_n"] > 2000
        assert second["timings"]["prompt_n"] < 100
        daemon.until(lambda _: list(slots.iterdir()) == [], "the files are removed")
        daemon.until(lambda _: is_known(daemon), "what its new process is")
        restart(daemon, 2048)  # it does not fit that one
        daemon.until(lambda _: daemon.event_names().count("backend_restarted") == 2, "restarted again")
        assert "1 conversation was lost" in daemon.snapshot.events[-1].message
        assert asked(daemon, port, "hello", 4)["tokens_predicted"] == 4
        assert list(slots.iterdir()) == []


def test_a_request_that_is_worked_on_is_waited_for_and_completes(tmp_path: Path, small_model: Path) -> None:
    port, slots = free_port(), tmp_path / "slots"
    slots.mkdir()
    with in_process(tmp_path, config(STAND_IN, small_model, port, slots)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: is_known(daemon), "what it is")
        question = Asked(port, "once upon a time", 1500)
        daemon.until(lambda _: supervisor(daemon).state.busy == 1, "it works")
        restart(daemon, 4096, 60.0)
        daemon.until(
            lambda _: "waits for 1 request to end before its restart" in daemon.view("glm").sentence, "it waits"
        )
        daemon.until(lambda _: "backend_restarted" in daemon.event_names(), "restarted")
        daemon.until(lambda _: not question.is_alive(), "the answer")
        assert question.answer is not None
        assert question.answer["tokens_predicted"] == 1500
        assert daemon.snapshot.events[-1].message.endswith("no request was cut off")
        assert "1 conversation goes on" in daemon.snapshot.events[-1].message


def test_one_that_takes_too_long_is_cut_off_and_counted(tmp_path: Path, small_model: Path) -> None:
    port, slots = free_port(), tmp_path / "slots"
    slots.mkdir()
    with in_process(tmp_path, config(STAND_IN, small_model, port, slots)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: is_known(daemon), "what it is")
        # By another process: connections of the daemon's own count for nothing.
        with subprocess.Popen([sys.executable, "-c", ASK, f"http://127.0.0.1:{port}/completion"]) as question:
            daemon.until(lambda _: supervisor(daemon).state.busy == 1, "it works")
            restart(daemon, 8192, 0.5)
            daemon.until(lambda _: "backend_restarted" in daemon.event_names(), "restarted")
            assert daemon.snapshot.events[-1].message.endswith("1 request was cut off")
            daemon.until(lambda _: question.poll() is not None, "the end of the request")
        assert question.returncode == 3


def test_a_connection_without_a_request_makes_no_certainty(tmp_path: Path, small_model: Path) -> None:
    port, slots = free_port(), tmp_path / "slots"
    slots.mkdir()
    connects = f"import socket, sys; kept = socket.create_connection(('127.0.0.1', {port})); print(flush=True); sys.stdin.read()"
    with in_process(tmp_path, config(STAND_IN, small_model, port, slots)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: is_known(daemon), "what it is")
        with subprocess.Popen(
            [sys.executable, "-c", connects], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as client:
            assert client.stdout is not None
            client.stdout.readline()
            restart(daemon, 4096)
            daemon.until(lambda _: "backend_restarted" in daemon.event_names(), "restarted")
            client.communicate()
        # Others on this machine may connect to somebody at that moment, too.
        assert re.search(
            r"is not known: no more than \d+ connections? w(as|ere) open$", daemon.snapshot.events[-1].message
        )


LAST_MOMENT = """
import http.server, os, signal, socket, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        bodies = {"/health": b'{"status": "ok"}', "/slots": b'[{"id": 0, "n_ctx": 8192, "is_processing": false}]'}
        body = bodies.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
asked_to_end = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
threading.Thread(target=server.serve_forever, daemon=True).start()
asked_to_end.wait()
if sys.argv[2] == "connects":
    kept = socket.create_connection(server.server_address)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("how", "told"),
    [("connects", r"no more than \d+ connections? w(as|ere) open"), ("alone", "no request was cut off")],
)
def test_what_connects_in_the_very_last_moment_leaves_no_certainty(
    tmp_path: Path, small_model: Path, how: str, told: str
) -> None:
    port = free_port()
    made = config([], small_model, port, tmp_path)
    made["backends"][0]["supervise"]["command"] = [sys.executable, "-c", LAST_MOMENT, str(port), how, "{context}"]
    with in_process(tmp_path, made) as daemon:
        daemon.until(lambda _: supervisor(daemon).state.stage is Stage.READY, "ready")
        for number in range(1, 6):
            restart(daemon, 4096)
            daemon.until(
                lambda _, number=number: daemon.event_names().count("backend_restarted") == number, "restarted"
            )  # type: ignore[misc]
            found = re.search(told, daemon.snapshot.events[-1].message) is not None
            assert found or how == "alone"
            if found:
                return
        # At one of these moments nobody else on this machine connects to anybody.
        raise AssertionError(daemon.snapshot.events)


def test_with_an_api_key_it_waits_a_moment_and_saves_all_the_same(tmp_path: Path, small_model: Path) -> None:
    port, slots, program = free_port(), tmp_path / "slots", os.environ.get("LLAMA_SERVER")
    if program is None:
        pytest.skip("LLAMA_SERVER names no llama-server; neither the wheel's nor the stand-in takes keys")
    slots.mkdir()
    (tmp_path / "keys").write_text("# of this test\nsecret-of-this-test\n")
    made = config(shlex.split(program), small_model, port, slots, "--api-key-file", str(tmp_path / "keys"))
    with in_process(tmp_path, made) as daemon:
        daemon.until(lambda _: supervisor(daemon).state.stage is Stage.READY and is_known(daemon), "ready")
        first = asked(daemon, port, "a word or two " * 40, 4, "secret-of-this-test")
        restart(daemon, 4096)
        daemon.until(lambda _: "backend_restarted" in daemon.event_names(), "restarted")
        assert "1 conversation goes on" in daemon.snapshot.events[-1].message
        again = "a word or two " * 40 + first["content"] + " and then?"
        assert asked(daemon, port, again, 4, "secret-of-this-test")["timings"]["prompt_n"] < 100
        assert "secret-of-this-test" not in json.dumps(str(daemon.snapshot))


def test_stopped_for_a_second_look_it_goes_on_and_is_not_called_hung(tmp_path: Path, small_model: Path) -> None:
    port, slots = free_port(), tmp_path / "slots"
    slots.mkdir()
    with in_process(tmp_path, config(STAND_IN, small_model, port, slots)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: is_known(daemon), "what it is")
        question = Asked(port, "once upon a time", 400)
        daemon.until(lambda _: supervisor(daemon).state.busy == 1, "it works")
        supervisor(daemon).hold()
        daemon.until(lambda _: "is paused" in daemon.view("glm").sentence, "it is paused")
        daemon.until(lambda _: not supervisor(daemon).held, "it goes on")
        daemon.until(lambda _: not question.is_alive(), "the answer")
        assert question.answer is not None
        supervisor(daemon).pause_by_hand()
        daemon.until(lambda _: "is paused by hand since" in daemon.view("glm").sentence, "paused by hand")
        supervisor(daemon).resume_by_hand()
        daemon.until(daemon.phase_is("glm", "idle"), "it answers")
        assert daemon.event_names() == []
