"""The scenarios of relief on a real llama.cpp server in a memory cgroup of its own: each is a function from a `Lab` to a `Run`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relief_checks import BackendRun, Run
from relief_hog import Hog, hog
from relief_place import place
from relief_scene import (
    COOL_DOWN_SECONDS,
    BackendSpec,
    Scene,
    finish,
    free_port,
    load_seconds,
    long_question,
    scene,
    short_question,
    wait_for,
)

from moetuned.demo.backend_choice import choose
from moetuned.host.model_files import read_model
from moetuned.simulator.make_model import main as make_model

MIB = 1 << 20
PROCESS_BYTES = 128 * MIB
"""A llama.cpp's own memory besides the KV cache: buffers, code, page tables."""
HOLDS_RATIO = 0.6
"""Of the model that fits beside everything else."""
PREFERRED, HALF, SMALL, MINIMUM = 2560, 1280, 1024, 512
THREADS = 1
"""More would wait for each other in a loop whenever somebody else uses a processor."""
SLOW, FAST = 20 * MIB, 400 * MIB
LEAVES_RATIO = 0.035
"""Headroom that a fast hog leaves: less than half of where memory is near its limit."""
RELIEVED_SECONDS = 120.0
"""Also where others use the processors: a prompt cache is filled by requests."""
AFTER_SECONDS = 4.0
CONFIG: dict[str, Any] = {
    "watch": {"discover": False},
    "relief": {"mode": "act", "cool_down": f"{COOL_DOWN_SECONDS:g}s"},
}


@dataclass
class Lab:
    """Where scenarios run, and what was measured once for all of them."""

    directory: Path
    model: Path
    which: str = "auto"
    number: int = 0

    def __post_init__(self) -> None:
        found = read_model(str(self.model)).identity
        assert found.kv_bytes_per_token is not None
        self.model_bytes, self.token_bytes = found.size_bytes, found.kv_bytes_per_token
        self._loads: dict[tuple[int, int], float] = {}

    def spec(self, name: str, preferred: int = PREFERRED, *, repack: bool = False, **more: Any) -> BackendSpec:
        choice = choose(self.which, free_port(), THREADS)
        assert choice.real, "the matrix needs a llama.cpp; the stand-in has one of its own"
        command = tuple(word for word in choice.command if word != "--no-repack") if repack else choice.command
        return BackendSpec(name, choice.kind, command, self.model, preferred, MINIMUM, **more)

    def limit(self, *preferred: int) -> int:
        """Holds part of the model and backends with these contexts."""
        return int(self.model_bytes * HOLDS_RATIO) + sum(PROCESS_BYTES + one * self.token_bytes for one in preferred)

    def load_seconds(self, spec: BackendSpec, limit_bytes: int) -> float:
        """Of the backend alone in such a cgroup; measured once."""
        key = (spec.preferred, limit_bytes)
        if key not in self._loads:
            with place(limit_bytes) as alone:
                self._loads[key] = load_seconds(alone, spec)
        return self._loads[key]

    def fresh(self, name: str) -> Path:
        self.number += 1
        return self.directory / f"{name}-{self.number}"


def _run(lab: Lab, name: str, limit_bytes: int, specs: tuple[BackendSpec, ...], **allowed: Any) -> Run:
    backends = [BackendRun(spec.name, spec.minimum, lab.load_seconds(_fitting(spec), limit_bytes)) for spec in specs]
    return Run(name, limit_bytes, COOL_DOWN_SECONDS, backends, **allowed)


def _fitting(spec: BackendSpec) -> BackendSpec:
    """One whose load alone can be measured in the cgroup of a scenario that asks for too much."""
    command = spec.command if "--no-repack" in spec.command else (*spec.command, "--no-repack")
    return BackendSpec(spec.name, spec.kind, command, spec.model, min(spec.preferred, PREFERRED), spec.minimum, 64)


@contextlib.contextmanager
def _told(run: Run) -> Iterator[None]:
    """What never came is a violation of the run, not the end of all."""
    try:
        yield
    except AssertionError as error:
        run.problems.append(str(error))


def _ready(found: Scene) -> None:
    found.ready()
    for spec in found.specs:
        asker = found.ask(spec, short_question)
        wait_for(lambda asker=asker: asker.count("complete") >= 2, f"{spec.name} answers")


def _until_relieved(found: Scene, then: float) -> None:
    wait_for(lambda: found.settled(then), "a backend is restarted and memory is well again", RELIEVED_SECONDS)
    time.sleep(AFTER_SECONDS)


def _beside(found: Scene, then: float, taken: Hog) -> None:
    """Until a backend was restarted, the hog has all that it wants, and all is well beside it."""
    _until_relieved(found, then)
    time.sleep(max(0.0, then + taken.seconds + AFTER_SECONDS - time.monotonic()))
    wait_for(found.calm, "all is well beside the hog", RELIEVED_SECONDS)
    assert taken.alive, "the hog was killed"


def prompt_cache(lab: Lab) -> Run:
    """A prompt cache that may take more than there is, and conversations that fill it."""
    spec = lab.spec("one", HALF, prompt_cache_mib=4096)
    limit = lab.limit(HALF)
    run = _run(lab, "prompt_cache", limit, (spec,), relief_due=True, restarts_allowed=1)
    config = {**CONFIG, "relief": {**CONFIG["relief"], "before_start": "off"}}
    with place(limit) as cgroup, scene(lab.fresh("prompt_cache"), cgroup, (spec,), config) as found:
        with _told(run):
            found.ready()
            then = time.monotonic()
            found.ask(spec, long_question(240))
            _until_relieved(found, then)
        return finish(found, run)


def kv_too_large(lab: Lab) -> Run:
    """A context whose KV cache alone is larger than the cgroup: it is started with what fits."""
    spec = lab.spec("one", 16384)
    limit = lab.limit(PREFERRED)
    run = _run(lab, "kv_too_large", limit, (spec,), restarts_allowed=0)
    with place(limit) as cgroup, scene(lab.fresh("kv_too_large"), cgroup, (spec,), CONFIG) as found:
        with _told(run):
            _ready(found)
            time.sleep(AFTER_SECONDS)
            snapshot = found.daemon.last
            assert snapshot is not None
            assert snapshot.backends[0].before_start, "no sentence says what was different at its start"
        return finish(found, run)


def _hog_inside(
    lab: Lab,
    name: str,
    size: Callable[[Scene, BackendSpec, int], int],
    rate: int,
    *,
    cache_mib: int = 64,
    **allowed: Any,
) -> Run:
    spec = lab.spec("one", prompt_cache_mib=cache_mib)
    limit = lab.limit(PREFERRED)
    run = _run(lab, name, limit, (spec,), **{"relief_due": True, "restarts_allowed": 1, **allowed})
    with place(limit) as cgroup, scene(lab.fresh(name), cgroup, (spec,), CONFIG) as found:
        with _told(run):
            _ready(found)
            then = time.monotonic()
            with hog(cgroup, size(found, spec, limit), rate) as taken:
                _beside(found, then, taken)
        return finish(found, run)


def _past_limit(found: Scene, spec: BackendSpec, _limit: int) -> int:
    """More than there is: only a shorter context makes room for it."""
    kv = (spec.preferred - spec.minimum) * read_model(str(spec.model)).identity.kv_bytes_per_token  # type: ignore[operator]
    return found.headroom_bytes(spec) + int(0.4 * kv)


def _to_the_brim(found: Scene, spec: BackendSpec, limit: int) -> int:
    return found.headroom_bytes(spec) - int(LEAVES_RATIO * limit)


def hog_slow(lab: Lab) -> Run:
    """A program in the same cgroup takes more than there is, 20 MiB a second."""
    return _hog_inside(lab, "hog_slow", _past_limit, SLOW)


def hog_fast(lab: Lab) -> Run:
    """A program in the same cgroup takes nearly all there is within a second."""
    # A prompt cache that still fills would take what the hog leaves, and the limit would come at once.
    return _hog_inside(lab, "hog_fast", _to_the_brim, FAST, cache_mib=0)


def hog_fast_past_limit(lab: Lab) -> Run:
    """The same, but more than there is, within a second or two: no restart can be in time. What comes of it is shown, and that it mends."""
    spec = lab.spec("one")
    limit = lab.limit(PREFERRED)
    run = _run(lab, "hog_fast_past_limit", limit, (spec,), oom_kill_is_fault=False)
    with place(limit) as cgroup, scene(lab.fresh("hog_fast_past"), cgroup, (spec,), CONFIG) as found:
        with _told(run):
            _ready(found)
            with hog(cgroup, _past_limit(found, spec, limit), FAST) as taken:
                time.sleep(taken.seconds + AFTER_SECONDS)
                wait_for(lambda: found.healthy(spec), "the backend is healthy again", RELIEVED_SECONDS)
        return finish(found, run)


def repack(lab: Lab) -> Run:
    """Weights that would be copied while it loads, in a cgroup smaller than the model."""
    spec = lab.spec("one", SMALL, repack=True)
    limit = lab.limit(SMALL)
    run = _run(lab, "repack", limit, (spec,), restarts_allowed=0)
    with place(limit) as cgroup, scene(lab.fresh("repack"), cgroup, (spec,), CONFIG) as found:
        with _told(run):
            _ready(found)
            time.sleep(AFTER_SECONDS)
        return finish(found, run)


def two_backends(lab: Lab) -> Run:
    """Two in one cgroup, and a program that takes all that there is."""
    specs = (lab.spec("one", HALF), lab.spec("two", HALF))
    limit = lab.limit(HALF, HALF)
    run = _run(lab, "two_backends", limit, specs, relief_due=True, restarts_allowed=2)
    with place(limit) as cgroup, scene(lab.fresh("two_backends"), cgroup, specs, CONFIG) as found:
        with _told(run):
            _ready(found)
            then = time.monotonic()
            with hog(cgroup, found.headroom_bytes(specs[0]), SLOW) as taken:
                _beside(found, then, taken)
        return finish(found, run)


def hog_outside(lab: Lab) -> Run:
    """A program in a cgroup beside the backend's fills its own limit: no reason to touch the backend."""
    spec = lab.spec("one", SMALL)
    limit, beside = lab.limit(SMALL), 256 * MIB
    run = _run(lab, "hog_outside", limit, (spec,), restarts_allowed=0)
    with (
        place(2 * limit + beside) as parent,
        parent.below("llm", limit) as own,
        parent.below("other", beside) as other,
        scene(lab.fresh("hog_outside"), own, (spec,), CONFIG) as found,
    ):
        with _told(run):
            _ready(found)
            with hog(other, int(0.9 * beside), FAST) as taken:
                time.sleep(12.0)
                assert taken.alive, "the hog was killed"
                assert found.calm(), "the backend was not left alone"
        return finish(found, run)


def limit_shared(lab: Lab) -> Run:
    """A limit above that the backend's cgroup shares with another, in which a program takes more than there is."""
    spec = lab.spec("one")
    limit = lab.limit(PREFERRED)
    run = _run(lab, "limit_shared", limit, (spec,), relief_due=True, restarts_allowed=1)
    with (
        place(limit) as parent,
        parent.below("llm") as own,
        parent.below("other") as other,
        scene(lab.fresh("limit_shared"), own, (spec,), CONFIG, parent) as found,
    ):
        with _told(run):
            _ready(found)
            then = time.monotonic()
            with hog(other, _past_limit(found, spec, limit), SLOW) as taken:
                _beside(found, then, taken)
        return finish(found, run)


def make(path: Path, size: str = "320M") -> Path:
    """A model whose context is dear: a few hundred tokens fill a prompt cache, which takes no minutes."""
    flags = ["--heads", "32", "--heads-kv", "32", "--key-length", "128"]
    assert make_model([str(path), "--size", size, *flags]) == 0
    return path


Scenario = Callable[[Lab], Run]
SCENARIOS: dict[str, Scenario] = {
    each.__name__: each
    for each in (
        prompt_cache, kv_too_large, hog_slow, hog_fast, repack, two_backends, hog_outside, limit_shared, hog_fast_past_limit,
    )
}  # fmt: skip
