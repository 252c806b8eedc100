"""What a real llama.cpp reads from the disk for the first requests after it has loaded: not warmed, warmed by vmtouch, warmed by moetuned.

End to end: the daemon starts the backend in a cgroup of the bench's own, learns from requests of one topic, keeps that, and warms the
next load with it. The model is 1.8 times the cgroup and lies on a loop device of the bench's own.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from fakes.loop_mount import loop_mount
from fakes.own_cgroup import own_cgroup
from measuring import Figure, drop, make_model, middle, read_bytes

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.host.cgroup import joining, processes_in
from moetuned.schema.snapshot import BackendView
from moetuned.simulator.topics import prompt_for_topic

pytestmark = [pytest.mark.bench, pytest.mark.kernel, pytest.mark.timeout(3600)]
MODEL = "1800M"
IMAGE_BYTES = 2100 << 20
LIMIT_BYTES = 1000 << 20
READ_AHEAD_KIB = 128
"""The kernel's default for a disk."""
REPETITIONS = 5
REQUESTS, TOKENS, CHARACTERS = 5, 16, 16
LEARNED_TOPIC, OTHER_TOPIC = 1, 5
LEARNING_SITTINGS, LEARNING_REQUESTS = 3, 8
FIRST_LEARNING_SEED = 1000
"""Prompts that are learned from and prompts that are measured are never the same."""
SITTING_PAUSE_SECONDS = 70.0
"""Long enough for the daemon to take the backend for idle, and to ask what of the model is really used."""
LAST_LOOK_SECONDS = 10.0
PART_OF_VMTOUCH = 0.1
"""What may be read after warming with heat, of what is read after `vmtouch -t`."""
NO_MORE = 1.03
"""Where nothing is known, the same is read whatever was done: so far a run strays from the next."""
WAIT_SECONDS = 180.0


class Measured(msgspec.Struct, frozen=True):
    """Bytes that the backend read for all requests; seconds to the first token of the first one."""

    read_bytes: int
    first_token_seconds: float


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Running:
    """A daemon of the bench's own with one backend, which it starts itself."""

    def __init__(self, directory: Path, model: Path, cgroup: str, state: Path, *, warms: bool) -> None:
        self.port = free_port()
        command = [
            sys.executable, "-m", "moetuned.xllamacpp_server", "-m", "{model}", "-c", "1024", "-np", "1", "-t", "1",
            "--no-repack", "--cache-ram", "0", "--no-warmup", "--port", str(self.port),
        ]  # fmt: skip
        root = str(Path(__file__).parents[2])
        config = {
            "backends": [
                {
                    "name": "heat",
                    "model": str(model),
                    "url": f"http://127.0.0.1:{self.port}",
                    "supervise": {
                        "by": "process",
                        "command": command,
                        "cgroup": cgroup,
                        "directory": root,
                        "log": str(directory / "backend.log"),
                    },
                }
            ],
            "watch": {"discover": False},
            "warm": {"enabled": warms},
            "relief": {"mode": "observe"},
            "api": {"listen": False},
        }
        path = directory / "moetuned.yaml"
        path.write_text(json.dumps(config))
        runtime = directory / "run"
        shutil.rmtree(runtime, ignore_errors=True)
        runtime.mkdir()
        self.client = Client(str(runtime / "api.sock"))
        arguments = ["run", "--config", str(path), "--state-dir", str(state), "--runtime-dir", str(runtime)]
        with (directory / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moetuned.daemon", *arguments], stdout=log, stderr=log
            )

    def view(self) -> BackendView | None:
        with contextlib.suppress(DaemonError):
            return next(iter(self.client.status().backends), None)
        return None

    def wait_for(self, what: str, holds: Callable[[BackendView], bool]) -> BackendView:
        deadline = time.monotonic() + WAIT_SECONDS
        while (view := self.view()) is None or not holds(view):
            assert self.process.poll() is None, "the daemon ended"
            assert time.monotonic() < deadline, f"not {what}: {view}"
            time.sleep(0.2)
        return view

    def ask(self, topic: int, seed: int) -> float:
        """Seconds until the first token of an answer that is taken whole."""
        body = {
            "prompt": prompt_for_topic(topic, CHARACTERS, seed), "n_predict": TOKENS, "ignore_eos": True,
            "cache_prompt": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": seed, "stream": True,
        }  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        begun = time.perf_counter()
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        first = None
        while line := response.readline():
            if first is None and line.startswith(b"data:"):
                first = time.perf_counter() - begun
        connection.close()
        assert first is not None, "an answer without tokens"
        return first


def end_what_is_left(cgroup: str) -> None:
    """A backend that a daemon left running keeps the mount and the cgroup busy."""
    for pid in processes_in(cgroup):
        handle = os.pidfd_open(pid)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], 30)
        os.close(handle)


@contextlib.contextmanager
def running(directory: Path, model: Path, cgroup: str, state: Path, *, warms: bool) -> Iterator[Running]:
    """From a cold cache until the backend is loaded and, where the daemon warms, warm; the backend ends with it."""
    drop(model)
    daemon = Running(directory, model, cgroup, state, warms=warms)
    try:
        daemon.wait_for("ready", lambda view: view.verdict.phase == "idle")
        if warms:
            daemon.wait_for("warm", lambda view: view.warm.state == "done")
        yield daemon
    finally:
        daemon.process.terminate()
        try:
            daemon.process.wait(60)
        except subprocess.TimeoutExpired:
            daemon.process.kill()
            daemon.process.wait()
        end_what_is_left(cgroup)


def learn(directory: Path, model: Path, cgroup: str, state: Path) -> None:
    """Requests of one topic in several sittings, as a person asks them; until what was learned is kept."""
    seed = FIRST_LEARNING_SEED
    with running(directory, model, cgroup, state, warms=True) as daemon:
        for sitting in range(LEARNING_SITTINGS):
            for _ in range(LEARNING_REQUESTS):
                daemon.ask(LEARNED_TOPIC, seed)
                seed += 1
            time.sleep(SITTING_PAUSE_SECONDS if sitting < LEARNING_SITTINGS - 1 else LAST_LOOK_SECONDS)
    assert any((state / "heat").iterdir()), "nothing was kept"


def measured(daemon: Running, topic: int, repetition: int) -> Measured:
    view = daemon.view()
    assert view is not None
    assert view.pid is not None
    before = read_bytes(view.pid)
    first = [daemon.ask(topic, REQUESTS * repetition + number) for number in range(REQUESTS)]
    return Measured(read_bytes(view.pid) - before, first[0])


def touch_by_vmtouch(model: Path, cgroup: str) -> None:
    subprocess.run(joining(cgroup, ["vmtouch", "-q", "-t", str(model)]), check=True)


def test_what_the_first_requests_read(on_disk: Path, figure: Figure) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs the wheel xllamacpp")
    if shutil.which("vmtouch") is None:
        pytest.skip("needs vmtouch")
    found: dict[tuple[str, int], list[Measured]] = {}
    with loop_mount(on_disk, IMAGE_BYTES, READ_AHEAD_KIB) as mounted, own_cgroup(LIMIT_BYTES) as cgroup:
        model = make_model(mounted / "model.gguf", MODEL)
        learned = on_disk / "learned"
        learn(on_disk, model, cgroup, learned)

        def measure(way: str, topic: int, repetition: int) -> None:
            state = on_disk / "state"
            shutil.rmtree(state, ignore_errors=True)
            if way == "heat":
                shutil.copytree(learned, state)
            with running(on_disk, model, cgroup, state, warms=way in ("moetuned", "heat")) as daemon:
                if way == "vmtouch":
                    touch_by_vmtouch(model, cgroup)
                found.setdefault((way, topic), []).append(measured(daemon, topic, repetition))

        cases = [(way, LEARNED_TOPIC) for way in ("nothing", "vmtouch", "moetuned", "heat")]
        cases += [(way, OTHER_TOPIC) for way in ("nothing", "moetuned", "heat")]
        for repetition in range(REPETITIONS):
            for way, topic in cases[:: -1 if repetition % 2 else 1]:
                measure(way, topic, repetition)
    read = {case: middle(run.read_bytes for run in runs) for case, runs in found.items()}
    first = {case: middle(run.first_token_seconds for run in runs) for case, runs in found.items()}
    nothing, vmtouch, warmed, heat = cases[:4]
    nothing_other, warmed_other, heat_other = cases[4:]
    figure("read by the first five requests, not warmed", read[nothing] / 1e6, "MB")
    figure("read by the first five requests, after vmtouch -t", read[vmtouch] / 1e6, "MB")
    figure("read by the first five requests, warmed without heat", read[warmed] / 1e6, "MB")
    figure("read by the first five requests, warmed with heat", read[heat] / 1e6, "MB")
    figure("the most of all runs, warmed with heat", max(run.read_bytes for run in found[heat]) / 1e6, "MB")
    figure("time to the first token, not warmed", first[nothing], "s")
    figure("time to the first token, after vmtouch -t", first[vmtouch], "s")
    figure("time to the first token, warmed without heat", first[warmed], "s")
    figure("time to the first token, warmed with heat", first[heat], "s")
    figure("warmed with heat reads", read[heat] / read[vmtouch], "times what is read after vmtouch -t")
    figure("warmed without heat reads", read[warmed] / read[vmtouch], "times what is read after vmtouch -t")
    figure("another topic, read when not warmed", read[nothing_other] / 1e6, "MB")
    figure("another topic, read when warmed without heat", read[warmed_other] / 1e6, "MB")
    figure("another topic, read when warmed with heat", read[heat_other] / 1e6, "MB")
    figure("another topic, time to the first token, not warmed", first[nothing_other], "s")
    figure("another topic, time to the first token, warmed with heat", first[heat_other], "s")
    figure(
        "another topic, warmed with heat reads", read[heat_other] / read[nothing_other], "times as much as not warmed"
    )
    assert read[heat] <= PART_OF_VMTOUCH * read[vmtouch]
    assert read[warmed] <= NO_MORE * read[vmtouch]
    assert read[heat_other] <= read[nothing_other]
    assert read[warmed_other] <= NO_MORE * read[nothing_other]
