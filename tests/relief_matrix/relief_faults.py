"""The matrix on the stand-in with injected faults: what goes wrong is drawn from a seed, and nothing may be doubled, orphaned or lost."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fakes.own_disk import mounted_loop_device
from relief_checks import BackendRun, Run
from relief_hog import hog
from relief_place import place
from relief_scene import BackendSpec, Scene, answered_whole, finish, free_port, scene, short_question, wait_for

from moetuned.simulator.make_model import main as make_model
from moetuned.tunables import load, module_names

MIB = 1 << 20
LIMIT_BYTES = 512 * MIB
LEFT_BYTES = 26 * MIB
"""Headroom that the hog leaves: near the limit (8 % are 41 MiB), and nothing is killed for it."""
PREFERRED, MINIMUM = 24576, 1024
HOG_BYTES_A_SECOND = 400 * MIB
HOG_ITSELF_BYTES = 10 * MIB
"""The interpreter that it is."""
COOL_DOWN_SECONDS = 10.0
"""The least that a config may say."""
READ_AHEAD_KIB = 192
"""A value that no kernel sets by itself."""
MODEL_BYTES, DISK_BYTES = 40 * MIB, 56 * MIB
LOAD_SECONDS = 5.0
WELL_SECONDS = 60.0
LONGEST_FAULT_SECONDS = 4.0


class Fault(StrEnum):
    """What goes wrong."""

    REFUSES_TO_DIE = "refuses to die"
    DIES_IN_RELIEF = "dies in relief"
    HEALTH_FLAPS = "health flaps"
    RECORDS_FULL = "records: disk full"
    RECORDS_READ_ONLY = "records: read-only"
    STATE_FULL = "undo journal: disk full"
    DAEMON_KILLED = "daemon killed"
    DAEMON_KILLED_TWICE = "daemon killed twice"


_EITHER = ({Fault.RECORDS_FULL, Fault.RECORDS_READ_ONLY}, {Fault.DAEMON_KILLED, Fault.DAEMON_KILLED_TWICE})


@dataclass(frozen=True)
class Plan:
    """What happens in one run, and when: seconds after the hog begins."""

    seed: int
    faults: frozenset[Fault]
    dies_after: float
    killed_after: tuple[float, ...]
    back_after: float
    full_from_start: bool

    def __str__(self) -> str:
        return f"{self.seed}: {', '.join(sorted(self.faults))}"


def draw(seed: int) -> Plan:
    """One to three faults that can come together."""
    chooser = random.Random(seed)
    while True:
        faults = frozenset(chooser.sample(sorted(Fault), chooser.randint(1, 3)))
        if all(len(faults & pair) < 2 for pair in _EITHER):
            break
    times = 2 if Fault.DAEMON_KILLED_TWICE in faults else int(Fault.DAEMON_KILLED in faults)
    return Plan(
        seed,
        faults,
        dies_after=chooser.uniform(0.0, 1.5),
        killed_after=tuple(sorted(chooser.uniform(0.0, LONGEST_FAULT_SECONDS) for _ in range(times))),
        back_after=chooser.choice((0.0, chooser.uniform(0.0, 2.0))),
        full_from_start=chooser.random() < 0.5,
    )


@dataclass(frozen=True)
class Disk:
    """A disk of the matrix's own with the model on it; what is tuned is its read-ahead."""

    device: str
    model: Path

    @property
    def _setting(self) -> Path:
        return Path(f"/sys/block/{self.device}/queue/read_ahead_kb")

    def read_ahead(self) -> int:
        return int(self._setting.read_text())


@contextlib.contextmanager
def own_disk(directory: Path) -> Iterator[Disk]:
    """The disk, with a small model on it."""
    with mounted_loop_device(directory, DISK_BYTES) as (device, model):
        assert make_model([str(model), "--size", str(MODEL_BYTES)]) == 0
        yield Disk(device, model)


def only_read_ahead() -> dict[str, Any]:
    """A `tuning` that changes nothing but the read-ahead under the model."""
    keys = [load(name).spec.config_key for name in module_names()]
    names = [key.removeprefix("tuning.sysctl.") for key in keys if key.startswith("tuning.sysctl.")]
    return {
        "profile": "moe-offload", "sysctl": dict.fromkeys(names, "keep"), "thp": "keep", "read_ahead": READ_AHEAD_KIB,
    }  # fmt: skip


CONFIG: dict[str, Any] = {
    "watch": {"discover": False, "interval": "200ms", "idle_interval": "200ms"},
    "relief": {"mode": "act", "cool_down": f"{COOL_DOWN_SECONDS:g}s", "settle": "1s", "at_most": "20/h"},
    "warm": {"enabled": False},
}


@contextlib.contextmanager
def _small(directory: Path, *, read_only: bool = False) -> Iterator[Path]:
    """A file system of one page, mounted there. Read-only, or as full as `fill` makes it."""
    directory.mkdir(parents=True, mode=0o700)
    options = "size=4k,mode=0700" + (",ro" if read_only else "")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "moetuned-test", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path) -> None:
    """Nothing can be written there any more."""
    with contextlib.suppress(OSError), (directory / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))


def run(disk: Disk, directory: Path, plan: Plan) -> Run:
    """One run; what it leaves in `directory` is removed."""
    before = disk.read_ahead()
    flags: list[str] = []
    if Fault.REFUSES_TO_DIE in plan.faults:
        flags.append("--simulate-ignore-sigterm")
    if Fault.HEALTH_FLAPS in plan.faults:
        flags += ["--simulate-flaky-health", "3"]
    command = (
        sys.executable, "-m", "moetuned.simulator", "serve", "-m", "{model}", "--port", str(free_port()), "--metrics", "-t", "1",
        "-c", "{context}", "--cache-ram", "{prompt_cache_mib}", *flags,
    )  # fmt: skip
    spec = BackendSpec("glm", "simulator", command, disk.model, PREFERRED, MINIMUM, prompt_cache_mib=0)
    made = Run(str(plan), LIMIT_BYTES, COOL_DOWN_SECONDS, [BackendRun("glm", MINIMUM, LOAD_SECONDS)], strict=False)
    config = {**CONFIG, "tuning": only_read_ahead()}
    with contextlib.ExitStack() as stack:
        broken = _break_directories(stack, directory, plan)
        cgroup = stack.enter_context(place(LIMIT_BYTES))
        found = stack.enter_context(scene(directory, cgroup, (spec,), config))
        try:
            _go(found, spec, plan, made, disk, before, broken)
        except AssertionError as error:
            made.problems.append(str(error))
        finish(found, made)
        after = disk.read_ahead()
        if after != before:
            made.problems.append(f"read-ahead of {disk.device} is left at {after} KiB, it was {before}")
        if _journal(directory):
            made.problems.append(f"the undo journal still holds: {_journal(directory)[:200]}")
    if not made.problems:
        shutil.rmtree(directory, ignore_errors=True)
    return made


def broken_directory(stack: contextlib.ExitStack, directory: Path, *, read_only: bool, full: bool) -> Path | None:
    """A file system of its own there that is read-only, or is returned to be filled."""
    if read_only:
        stack.enter_context(_small(directory, read_only=True))
    return stack.enter_context(_small(directory)) if full else None


def _break_directories(stack: contextlib.ExitStack, directory: Path, plan: Plan) -> list[Path]:
    """What is to be full, mounted, and full already where the plan says so."""
    full: list[Path] = []
    records = broken_directory(
        stack,
        directory / "run" / "backends",
        read_only=Fault.RECORDS_READ_ONLY in plan.faults,
        full=Fault.RECORDS_FULL in plan.faults,
    )
    if records is not None:
        full.append(records)
    if Fault.STATE_FULL in plan.faults:
        full.append(stack.enter_context(_small(directory / "state")))
    for each in full:
        if plan.full_from_start:
            fill(each)
    return full


def _go(found: Scene, spec: BackendSpec, plan: Plan, made: Run, disk: Disk, before: int, full: list[Path]) -> None:
    wait_for(
        lambda: (found.healthy(spec) and found.memory(spec) == "ok") or not found.daemon.alive(),
        "the stand-in is ready",
    )
    assert found.daemon.alive(), f"the daemon did not start:\n{found.daemon.log}"
    found.ask(spec, answered_whole(short_question))
    size = found.headroom_bytes(spec) - LEFT_BYTES - HOG_ITSELF_BYTES
    began = time.monotonic()
    with hog(found.place, size, HOG_BYTES_A_SECOND):
        for each in full:
            fill(each)
        steps = [(after, "daemon") for after in plan.killed_after]
        if Fault.DIES_IN_RELIEF in plan.faults:
            wait_for(lambda: found.daemon.named("memory_near_limit"), "memory is near its limit", 30.0)
            steps.append((time.monotonic() - began + plan.dies_after, "backend"))
        for after, who in sorted(steps):
            time.sleep(max(0.0, began + after - time.monotonic()))
            if who == "backend":
                _kill_backend(found, spec)
                continue
            found.daemon.kill()
            _undo_is_known(made, disk, before, found)
            time.sleep(plan.back_after)
            found.daemon.again()
        time.sleep(max(0.0, began + LONGEST_FAULT_SECONDS - time.monotonic()))
        wait_for(lambda: well(found, spec), "the backend is healthy and known to the daemon at last", WELL_SECONDS)
        assert found.daemon.alive(), "the daemon died"


def well(found: Scene, spec: BackendSpec) -> bool:
    """Whether the one process there is, is the one that the daemon that runs now shows."""
    last, seen = found.daemon.last, found.watch.seen[spec.port]
    pids = {view.pid for view in last.backends} if last is not None else set()
    return (
        found.healthy(spec)
        and bool(seen.lives)
        and seen.lives[-1][0] in pids
        and last.daemon.pid == found.daemon.process.pid
    )


def _kill_backend(found: Scene, spec: BackendSpec) -> None:
    lives = found.watch.seen[spec.port].lives
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(lives[-1][0])
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def _undo_is_known(made: Run, disk: Disk, before: int, found: Scene) -> None:
    """What a killed daemon left changed stands in its journal with what it was."""
    journal = _journal(found.daemon.directory)
    if disk.read_ahead() != before and not (disk.device in journal and str(before) in journal):
        made.problems.append(
            f"read-ahead is changed and the undo journal does not know that it was {before}: {journal[:200]!r}"
        )


def _journal(directory: Path) -> str:
    path = directory / "state" / "undo.jsonl"
    return path.read_text() if path.exists() else ""
