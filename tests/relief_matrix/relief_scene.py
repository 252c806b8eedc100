"""One scenario under way: backends in a cgroup, the daemon beside them, clients that ask, and what comes of it as a `Run`."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relief_asker import Asker, Body
from relief_checks import Run, Said
from relief_daemon import PROGRAM, DaemonUnderTest, Program
from relief_place import Place
from relief_watch import Watch, command_line, is_healthy, serves

from moetuned.host.cgroup import joining
from moetuned.simulator.topics import prompt_for_topic

LONGEST_SECONDS = 120.0
"""Only ends a run that would otherwise hang."""
COOL_DOWN_SECONDS = 120.0
FRESH_SECONDS = 1.2
"""What the daemon says after so long it has looked at since."""
WAITS = "if memory goes on growing"
"""What a daemon says it would do while the limit is far enough to wait and see."""


@dataclass(frozen=True)
class BackendSpec:
    """A backend of a scenario. `command` holds the config's placeholders. `supervise`: where moetuned does not start it itself."""

    name: str
    kind: str
    command: tuple[str, ...]
    model: Path
    preferred: int
    minimum: int = 2048
    prompt_cache_mib: int = 64
    supervise: dict[str, Any] | None = None

    @property
    def port(self) -> int:
        return int(self.command[self.command.index("--port") + 1])

    def entry(self, place: Place, log: Path) -> dict[str, Any]:
        """Its entry in the config."""
        return {
            "name": self.name,
            "kind": self.kind,
            "model": str(self.model),
            "url": f"http://127.0.0.1:{self.port}",
            "context": {"preferred": self.preferred, "minimum": self.minimum},
            "prompt_cache_mib": self.prompt_cache_mib,
            "supervise": self.supervise or {
                "by": "process", "command": list(self.command), "cgroup": place.directory, "log": str(log),
            },
        }  # fmt: skip

    def alone(self) -> list[str]:
        """Its command line as it would be with what is preferred."""
        values = {
            "{model}": str(self.model), "{context}": str(self.preferred), "{prompt_cache_mib}": str(self.prompt_cache_mib),
            "{slots}": "1", "{checkpoints}": "0", "{cache_type}": "f16",
        }  # fmt: skip
        return [values.get(word, word) for word in self.command]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def load_seconds(place: Place, spec: BackendSpec) -> float:
    """How long this backend alone takes from its start until it is healthy in this cgroup; its model is not in memory before."""
    drop_cache(spec.model)
    began = time.monotonic()
    process = subprocess.Popen(
        joining(place.directory, spec.alone()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: is_healthy(spec.port) or process.poll() is not None, "it loads alone")
        if process.poll() is not None:
            raise AssertionError(f"it cannot be started alone: code {process.returncode}")
        return time.monotonic() - began
    finally:
        process.kill()
        process.wait()


def drop_cache(path: Path) -> None:
    """Its pages leave the page cache, so that they are charged to who reads them next."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def wait_for(condition: Callable[[], Any], what: str, seconds: float = LONGEST_SECONDS) -> None:
    """Until it is so. Raises AssertionError."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"it never came to this: {what}")
        time.sleep(0.05)


class Scene:
    """What a scenario acts on."""

    def __init__(
        self,
        directory: Path,
        place: Place,
        specs: tuple[BackendSpec, ...],
        config: dict[str, Any],
        watched: Place,
        program: Program = PROGRAM,
    ) -> None:
        self.place = place
        self.specs = specs
        self.askers: dict[str, list[Asker]] = {spec.name: [] for spec in specs}
        self.watch = Watch(place, tuple(spec.port for spec in specs), watched)
        entries = [spec.entry(place, directory / f"{spec.name}.log") for spec in specs]
        try:
            self.daemon = DaemonUnderTest(directory, {**config, "backends": entries}, program=program)
        except BaseException:
            self.watch.stop()
            raise

    def ready(self) -> None:
        """Until every backend is healthy and the daemon has judged its memory."""
        for spec in self.specs:
            wait_for(lambda spec=spec: self.healthy(spec) or not self.daemon.alive(), f"{spec.name} is healthy")
        for spec in self.specs:
            wait_for(
                lambda spec=spec: self.memory(spec) == "ok" or not self.daemon.alive(), f"memory of {spec.name} is ok"
            )
        assert self.daemon.alive(), f"the daemon did not start:\n{self.daemon.log}"

    def healthy(self, spec: BackendSpec) -> bool:
        seen = self.watch.seen[spec.port].healthy
        return bool(seen) and seen[-1][1]

    def memory(self, spec: BackendSpec) -> str | None:
        return next((one.memory for one in reversed(self.daemon.moments) if one.backend == spec.name), None)

    def headroom_bytes(self, spec: BackendSpec) -> int:
        """What is left now: the daemon is asked until it says something newer."""
        after = time.monotonic() + FRESH_SECONDS

        def newest() -> int | None:
            found = (
                one.headroom_bytes
                for one in reversed(self.daemon.moments)
                if one.backend == spec.name and one.at > after
            )
            return next(found, None)

        wait_for(lambda: newest() is not None, "its headroom is known")
        return newest() or 0

    def ask(self, spec: BackendSpec, body: Body, pause_seconds: float = 0.05) -> Asker:
        asker = Asker(spec.port, body, pause_seconds).start()
        self.askers[spec.name].append(asker)
        return asker

    def settled(self, then: float) -> bool:
        """Whether a backend was restarted since `then`, all are healthy again and none is near its limit."""
        told = any(one.at_seconds >= then for one in self.daemon.named("backend_restarted"))
        return told and self.calm()

    def calm(self) -> bool:
        """Whether all are healthy and none is near its limit, or is known to be where nothing can be done."""
        return all(self.healthy(spec) and self.memory(spec) == "ok" for spec in self.specs)

    def close(self) -> None:
        for askers in self.askers.values():
            for asker in askers:
                asker.stop()
        self.daemon.close()
        self.watch.stop()


@contextlib.contextmanager
def scene(
    directory: Path,
    place: Place,
    specs: tuple[BackendSpec, ...],
    config: dict[str, Any],
    watched: Place | None = None,
    program: Program = PROGRAM,
) -> Iterator[Scene]:
    """Started; ended whatever happens. `watched`: whose OOM kills count, unset: those of `place`."""
    directory.mkdir(parents=True, exist_ok=True)
    found = Scene(directory, place, specs, config, watched or place, program)
    try:
        yield found
    finally:
        found.close()


def finish(scene: Scene, run: Run) -> Run:
    """End everything in order and put down what was seen. `run` says what is allowed."""
    for askers in scene.askers.values():
        for asker in askers:
            asker.stop()
    daemon = scene.daemon
    run.daemon_code = daemon.finish()
    run.unasked_deaths = list(daemon.unasked_deaths)
    scene.watch.stop()
    run.oom_kills, run.oom_kill_times = scene.watch.oom_kills, scene.watch.oom_kill_times
    run.failures, run.most_bytes = scene.watch.failures, scene.watch.most_bytes
    run.events = [Said(one.at_seconds, one.name.value, one.backend, one.message) for one in daemon.events]
    run.left = left_behind(scene.place, scene.specs)
    for backend, spec in zip(run.backends, scene.specs, strict=True):
        seen = scene.watch.seen[spec.port]
        backend.lives, backend.doubles, backend.healthy = seen.lives, seen.doubles, seen.healthy
        backend.contexts = [
            (one.at, one.context) for one in daemon.moments if one.backend == spec.name and one.context is not None
        ]
        backend.waits = [
            one.at for one in daemon.moments if one.backend == spec.name and any(WAITS in what for what in one.would_do)
        ]
        backend.outcomes = [outcome for asker in scene.askers[spec.name] for outcome in asker.outcomes]
    return run


def left_behind(place: Place, specs: tuple[BackendSpec, ...]) -> list[str]:
    """Processes that are still in the cgroup, or serve one of the ports anywhere; each as a sentence."""
    found = [(pid, " ".join(command_line(pid))[:120]) for pid in place.processes()]
    inside = [f"process {pid} in {place.directory}: {words}" for pid, words in found if words]
    ports = {spec.port for spec in specs}
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    serving = [pid for pid in pids if any(serves(command_line(pid), port) for port in ports)]
    return inside + [f"backend process {pid}: {' '.join(command_line(pid))[:120]}" for pid in serving]


def short_question(number: int) -> dict[str, object]:
    """A completion about one topic, streamed; nothing of it is kept."""
    return {
        "prompt": prompt_for_topic(1, 32, number), "n_predict": 48, "ignore_eos": True, "cache_prompt": False,
        "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": number, "stream": True,
    }  # fmt: skip


def long_question(tokens: int) -> Body:
    """Prompts of this many tokens (a made model has one for each character), each another: a prompt cache keeps them all."""

    def body(number: int) -> dict[str, object]:
        return {
            "prompt": prompt_for_topic(number, tokens, number), "n_predict": 4, "ignore_eos": True, "cache_prompt": True,
            "temperature": 1.0, "seed": number, "stream": True,
        }  # fmt: skip

    return body


def answered_whole(body: Body) -> Body:
    """The same for a server that does not stream."""
    return lambda number: {**body(number), "stream": False}
