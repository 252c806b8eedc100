"""Real memory that grows in a real cgroup until the kernel's OOM killer comes, looked at with a clock that only the test moves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.own_cgroup import hierarchy, own_cgroup

from moetuned.decide import detector, signals
from moetuned.decide.facts import BackendFacts
from moetuned.host.cgroup import joining, memory_cgroup
from moetuned.host.sampler import Sampler
from moetuned.parse.assemble import assemble
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendIdentity, RawBackend, Sample

pytestmark = pytest.mark.kernel
MIB = 1 << 20
LIMIT_BYTES = 400 * MIB
HTTP = RawBackend({"/health": '{"status": "ok"}', "/slots": '[{"id": 0, "is_processing": false}]'})
HOG = (
    "import os, sys\nheld = []\n"
    "for line in sys.stdin:\n    held.append(bytearray(b'x') * int(line))\n    print('held', flush=True)\n"
)


@contextlib.contextmanager
def full_cgroup() -> Iterator[str]:
    """A cgroup with a limit that nothing can be swapped out of, whatever swap the machine has."""
    with own_cgroup(LIMIT_BYTES) as directory:
        for name, none in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(LIMIT_BYTES))):
            if os.path.exists(f"{directory}/{name}"):
                Path(f"{directory}/{name}").write_text(none)
        yield directory


class Seconds:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class Hog:
    """A process that allocates when it is told to."""

    def __init__(self, directory: str) -> None:
        command = joining(directory, [sys.executable, "-S", "-c", HOG])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def grow(self, size_bytes: int) -> bool:
        """False: it was killed over it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(f"{size_bytes}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        return self.process.stdout.readline() == "held\n"


@contextlib.contextmanager
def hog_in(directory: str) -> Iterator[Hog]:
    hog = Hog(directory)
    try:
        assert hog.grow(MIB), "it could not be started in its cgroup"
        yield hog
    finally:
        hog.process.kill()
        hog.process.communicate()


def last_words(backend: int, hog: Hog, step_bytes: int, every: int) -> tuple[float | None, float, str]:
    """Seconds from the start of the growth to memory_near_limit and to the kill, and what was said; each tick is one second."""
    clock, place = Seconds(), memory_cgroup(backend)
    assert place.directory is not None
    identity = BackendIdentity(
        "one",
        pid=backend,
        cgroup_directory=place.directory,
        cgroup_version=place.version,
        limited_above=place.limited_above,
    )
    sampler = Sampler(clock)
    state, window = detector.initial("one"), list[Sample]()
    near, said, began = None, "", 0.0
    try:
        for tick in range(120):
            clock.now += 1.0
            if tick == 10:
                began = clock.now
            if tick >= 10 and (tick - 10) % every == 0 and not hog.grow(step_bytes * every):
                return near, clock.now - began, said
            window.append(assemble(sampler.read([identity], {"one": HTTP}), [identity]))
            found = signals.derive(window[-60:], "one", BackendFacts())
            step = detector.step(state, found, window[-1].backends[0], BackendFacts(), detector.DetectorSettings())
            state = step.state
            for begun in step.begun:
                if begun.name is EventName.MEMORY_NEAR_LIMIT and near is None:
                    near, said = clock.now - began, begun.message
    finally:
        sampler.close()
    raise AssertionError("nothing was killed")


@pytest.mark.parametrize(("mib_a_second", "every"), [(8, 1), (20, 1), (10, 4)])
def test_ten_seconds_before_another_process_in_its_cgroup_has_it_full(mib_a_second: int, every: int) -> None:
    with full_cgroup() as directory, hog_in(directory) as hog:
        backend = subprocess.Popen(joining(directory, ["sleep", "600"]))
        try:
            wait_until_in(directory, backend.pid)
            near, kill, said = last_words(backend.pid, hog, mib_a_second * MIB, every)
        finally:
            backend.kill()
            backend.wait()
    assert near is not None
    assert 0 < near <= kill - 10
    assert "another process in the backend's cgroup" in said or every > 1


def test_ten_seconds_before_a_limit_above_that_it_shares_is_full() -> None:
    with full_cgroup() as shared:
        if hierarchy().version == 2:
            Path(f"{shared}/cgroup.subtree_control").write_text("+memory")
        for name in ("llm", "other"):
            os.mkdir(f"{shared}/{name}")
        try:
            with hog_in(f"{shared}/other") as hog:
                backend = subprocess.Popen(joining(f"{shared}/llm", ["sleep", "600"]))
                try:
                    wait_until_in(f"{shared}/llm", backend.pid)
                    near, kill, said = last_words(backend.pid, hog, 15 * MIB, 1)
                finally:
                    backend.kill()
                    backend.wait()
        finally:
            for name in ("llm", "other"):
                os.rmdir(f"{shared}/{name}")
    assert near is not None
    assert 0 < near <= kill - 10
    assert shared in said
    assert "from outside the backend's cgroup" in said


def wait_until_in(directory: str, pid: int) -> None:
    """It joins before its program runs; the file tells at once."""
    while memory_cgroup(pid).directory != directory:
        assert os.path.exists(f"/proc/{pid}")
