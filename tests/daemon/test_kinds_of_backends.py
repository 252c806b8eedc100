"""The daemon and a backend of each kind, as processes that answer as documented: found, with its model, its phase and its tokens."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_backend import SCRIPT, Fake, start, write_answers
from running import InProcess, free_port, in_process

pytestmark = pytest.mark.backend

OK = '{"status":"ok"}'


def config(kind: str, port: int, **more: Any) -> dict[str, Any]:
    entry = {"name": "own", "kind": kind, "url": f"http://127.0.0.1:{port}", **more}
    return {"watch": {"discover": False, "interval": "200ms"}, "warm": {"enabled": False}, "backends": [entry]}


def says(daemon: InProcess, phase: str, words: str) -> None:
    daemon.until(
        lambda _: (
            (view := daemon.view("own")) is not None
            and view.verdict.phase == phase
            and any(words in reason.text for reason in view.verdict.reasons)
        ),
        f"{phase}: {words}",
    )


def model_is(daemon: InProcess, model: Path) -> None:
    daemon.until(lambda _: (view := daemon.view("own")) is not None and view.model_path == str(model), "its model")


def context_of(daemon: InProcess) -> int | None:
    view = daemon.view("own")
    return None if view is None else view.context.now


def script(directory: Path, name: str) -> str:
    directory.mkdir(exist_ok=True)
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(SCRIPT)
    return name


def test_koboldcpp(tmp_path: Path, small_model: Path) -> None:
    port, own = free_port(), tmp_path / "kobold"
    context = {"/api/extra/true_max_context_length": '{"value": 6144}'}
    argv = [script(own, "koboldcpp.py"), "--model", str(small_model), "--port", str(port)]
    idle = {"/api/extra/perf": '{"queue": 0, "idle": 1}', **context}
    with (
        start(own, argv, port, idle, model=small_model) as fake,
        in_process(tmp_path, config("koboldcpp", port)) as daemon,
    ):
        says(daemon, "idle", "no request is processed")
        model_is(daemon, small_model)
        daemon.until(lambda _: context_of(daemon) == 6144, "the context that it tells")
        fake.answers({"/api/extra/perf": '{"queue": 1, "idle": 0}', **context})
        says(daemon, "unknown", "it works on 1 request; whether on prompt or answer, its kind does not tell")
        assert fake.asked == {"/api/extra/perf", "/api/extra/true_max_context_length"}
        assert daemon.event_names() == []


def test_llama_cpp_python_is_asked_nothing_that_would_disturb_it(tmp_path: Path, small_model: Path) -> None:
    port, own = free_port(), tmp_path / "python"
    script(own, "llama_cpp/server/__main__.py")
    argv = ["-m", "llama_cpp.server", "--n_ctx", "3072"]
    environ = {"MODEL": str(small_model), "PORT": str(port)}
    with (
        start(own, argv, port, {"/docs": "<html>"}, model=small_model, **environ) as fake,
        in_process(tmp_path, config("llama-cpp-python", port)) as daemon,
    ):
        says(daemon, "unknown", "it is ready; what it does, its kind does not tell")
        model_is(daemon, small_model)
        assert context_of(daemon) == 3072
        assert fake.asked == {"/docs"}
        fake.process.kill()
        daemon.until(lambda _: "backend_down" in daemon.event_names(), "its end is told")


def slots(decoded: int) -> dict[str, object]:
    slot = {"n_ctx": 2048, "id": 0, "id_task": 0, "state": 1, "next_token": {"n_decoded": decoded}}
    return {"/health": OK, "/slots": json.dumps([slot])}


def test_ik_llama(tmp_path: Path, small_model: Path) -> None:
    port, own = free_port(), tmp_path / "ik"
    argv = [script(own, "serve.py"), "-m", str(small_model), "-c", "2048", "-fmoe", "--port", str(port)]
    with (
        start(own, argv, port, slots(5), model=small_model, program="ik_llama.cpp/bin/llama-server") as fake,
        in_process(tmp_path, config("ik-llama", port)) as daemon,
    ):
        says(daemon, "decode", "1 of 1 slots busy, generating")
        model_is(daemon, small_model)
        _counts(daemon, fake, slots)


def _counts(daemon: InProcess, fake: Fake, bodies: Callable[[int], dict[str, object]]) -> None:
    """Its tokens go on, and so does what the daemon makes of them."""
    counted = itertools.count(100, 3)

    def moves(_: object) -> bool:
        fake.answers(bodies(next(counted)))
        speed = daemon.view("own").signals.get("tokens_per_second")
        return speed is not None and speed > 0

    daemon.until(moves, "tokens a second")


def test_generic(tmp_path: Path, small_model: Path) -> None:
    port, own = free_port(), tmp_path / "engine"
    argv = [script(own, "engine.py"), "serve"]
    numbers = {
        "process": r".*engine\.py serve",
        "health": "/ready",
        "tokens": r"gen_total (\S+)",
        "requests": r"running (\S+)",
    }

    def bodies(tokens: int) -> dict[str, object]:
        return {"/ready": "yes", "/metrics": f"# TYPE gen_total counter\ngen_total {tokens}\nrunning 1\n"}

    wanted = config("generic", port, generic=numbers)
    with (
        start(own, argv, port, {"/ready": (503, "loading")}, model=small_model) as fake,
        in_process(tmp_path, wanted) as daemon,
    ):
        says(daemon, "loading", "loads the model")
        model_is(daemon, small_model)
        fake.answers(bodies(1))
        says(daemon, "unknown", "it works on 1 request")
        _counts(daemon, fake, bodies)


def test_ollama_is_followed_from_its_server_to_its_runner_and_back(tmp_path: Path, small_model: Path) -> None:
    front, behind, own, runners = free_port(), free_port(), tmp_path / "ollama", tmp_path / "runner"
    script(own, "serve")
    script(runners, "runner")
    none = {"/api/version": '{"version":"0.14.2"}', "/api/ps": '{"models":[]}'}
    # The server starts what the file `begin` says, so that the runner is its child.
    (own / "serve").write_text(PARENT + SCRIPT)
    argv = ["serve"]
    environ = {"OLLAMA_HOST": f"127.0.0.1:{front}", "OLLAMA_CONTEXT_LENGTH": "4096", "BEGIN": str(own / "begin")}
    with (
        start(own, argv, front, none, program="ollama", **environ) as server,
        in_process(tmp_path, config("ollama", front)) as daemon,
    ):
        says(daemon, "idle", "no model is loaded")
        assert daemon.view("own").pid == server.process.pid
        answers = runners / "answers.json"
        write_answers(answers, {"/health": '{"status":3,"progress":0.5}'})
        runner = ["runner", "--ollama-engine", "--model", str(small_model), "--port", str(behind)]
        added = {"FAKE_PORT": str(behind), "FAKE_ANSWERS": str(answers), "FAKE_MODEL": str(small_model)}
        begin = {"executable": str(own / "ollama"), "argv": runner, "cwd": str(runners), "environ": added}
        (own / "begin.new").write_text(json.dumps(begin))
        (own / "begin.new").rename(own / "begin")
        says(daemon, "loading", "loads the model")
        view = daemon.view("own")
        assert view.pid != server.process.pid
        assert (view.url, context_of(daemon)) == (f"http://127.0.0.1:{behind}", 4096)
        write_answers(answers, {"/health": '{"status":0,"progress":1}'})
        says(daemon, "unknown", "it is ready; what it does, its kind does not tell")
        model_is(daemon, small_model)
        os.kill(view.pid, signal.SIGKILL)
        daemon.until(lambda _: daemon.view("own").pid == server.process.pid, "its server is followed again")
        says(daemon, "idle", "no model is loaded")


PARENT = """
import json, os, subprocess, threading, time

def begin():
    while not os.path.exists(os.environ["BEGIN"]):
        time.sleep(0.02)
    with open(os.environ["BEGIN"]) as file:
        wanted = json.load(file)
    subprocess.Popen([wanted["executable"], *wanted["argv"]], cwd=wanted["cwd"], env={**os.environ, **wanted["environ"]}).wait()

threading.Thread(target=begin, daemon=True).start()
"""
