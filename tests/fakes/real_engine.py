"""A real docker or podman for a test: an image without files of its own that runs the machine's programs, removed afterwards.

Podman gets storage of its own, so that nothing of it is left; docker is the one of DOCKER_HOST or of the usual socket.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moetuned.host.program_search import find_program

PEACEFUL = "trap 'exit 0' TERM; while :; do sleep 1 & wait; done"
"""A server that ends when it is asked to."""


class RealEngine:
    """`command`: its command line; `options`: what a container needs here, before `image`."""

    def __init__(self, name: str, command: tuple[str, ...]) -> None:
        self.name, self.command = name, command
        self.image = f"moetuned-test-{os.getpid()}:latest"
        mounts = [part for place in ("/usr", "/etc") for part in ("-v", f"{place}:{place}:ro")]
        # Limits: an engine may want to raise them further than it may.
        self.options = ("--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", *mounts)

    def run(self, *arguments: str, given: bytes | None = None, check: bool = True) -> str:
        done = subprocess.run((*self.command, *arguments), input=given, capture_output=True, check=False, timeout=120)
        if check and done.returncode != 0:
            raise AssertionError(f"{arguments}: {done.stderr.decode()}")
        return done.stdout.decode()


def _links() -> bytes:
    """A root file system of links to /usr, as a tar."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as tar:
        for name in ("bin", "sbin", "lib", "lib64"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(entry)
    return text.getvalue()


@contextmanager
def real_engine(name: str, directory: Path) -> Iterator[RealEngine]:
    """The engine, or the test is skipped with what is missing."""
    if os.geteuid() != 0:
        pytest.skip("containers of root's engine need root")
    program = find_program(name) or (f"/usr/local/bin/{name}" if os.path.exists(f"/usr/local/bin/{name}") else None)
    if program is None:
        pytest.skip(f"there is no {name}")
    engine = RealEngine(name, _podman(program, directory) if name == "podman" else _docker(program))
    listed = subprocess.run((*engine.command, "ps"), capture_output=True, check=False, timeout=60)
    if listed.returncode != 0:
        pytest.skip(f"{name} does not answer: {listed.stderr.decode()[-200:].strip()}")
    engine.run("import", "-", engine.image, given=_links())
    try:
        trial = f"moetuned-trial-{os.getpid()}"
        tried = (*engine.command, "run", "--rm", "--name", trial, *engine.options, engine.image, "/bin/true")
        done = subprocess.run(tried, capture_output=True, check=False, timeout=120)
        if done.returncode != 0:
            engine.run("rm", "--force", trial, check=False)
            pytest.skip(f"{name} cannot run a container here: {done.stderr.decode()[-300:].strip()}")
        yield engine
    finally:
        engine.run("rmi", "--force", engine.image, check=False)


def _docker(program: str) -> tuple[str, ...]:
    return (program, "--host", os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))


def _podman(program: str, directory: Path) -> tuple[str, ...]:
    places = ("--root", f"{directory}/root", "--runroot", f"{directory}/run", "--tmpdir", f"{directory}/tmp")
    runtime = find_program("runc") or find_program("crun") or "runc"  # crun refuses a hybrid of cgroup v1 and v2
    managed = (
        "--storage-driver",
        "vfs",
        "--cgroup-manager",
        "cgroupfs",
        "--events-backend",
        "none",
        "--runtime",
        runtime,
    )
    return (program, *places, *managed)
