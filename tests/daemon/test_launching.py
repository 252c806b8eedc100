"""What a backend is started with, looked at right before it is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from daemon_fakes import HeldWorkers

from moetuned.daemon import launching, obstacles
from moetuned.daemon.launching import Launching, look
from moetuned.daemon.process_supervisor import Prepared
from moetuned.daemon.settings import settings_of
from moetuned.decide.exit_cause import Cause, Obstacle
from moetuned.decide.launch_command import preferred_plan
from moetuned.host.machine import MachineError
from moetuned.schema.config import Backend, Config, Context, Relief
from moetuned.schema.estimate import Amount, MachineFacts
from moetuned.schema.relief import BeforeStart
from moetuned.schema.supervise import SuperviseProcess

MIB = 1 << 20
FIT, REFUSE, OFF = (settings_of(Config(relief=Relief(before_start=how))) for how in BeforeStart)
COMMAND = ["llama-server", "-m", "{model}", "-c", "{context}", "-np", "1", "-nr", "-ctxcp", "{checkpoints}"]


@pytest.fixture
def config(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
    def amount(size: int) -> Amount:
        return Amount(size, size, "a test")

    here = MachineFacts(amount(900 * MIB), amount(100 * MIB), amount(0))
    monkeypatch.setattr(launching, "read_machine", lambda pid, cpus, cgroup: here)
    monkeypatch.setattr(launching, "_help", lambda program: None)
    monkeypatch.setattr(obstacles, "is_taken", lambda host, port: False)
    supervise = SuperviseProcess(command=COMMAND, cgroup="/sys/fs/cgroup/x")
    context = Context(preferred=262144, minimum=1024)
    return Backend("glm", model=str(small_model), supervise=supervise, context=context, checkpoints=4)


def test_it_is_started_with_what_fits_and_that_is_said(config: Backend) -> None:
    found = look(config, preferred_plan(config), FIT, {})
    assert 1024 <= found.plan.context_length < 262144
    assert found.plan.checkpoints == 4
    assert (found.command, found.refused) == (tuple(COMMAND), None)
    assert (found.said or "").startswith(
        f"started with what fits (context 262144 -> {found.plan.context_length}): it would"
    )
    assert "of 900 MiB (a test)" in (found.said or "")


def test_or_not_at_all(config: Backend) -> None:
    found = look(config, preferred_plan(config), REFUSE, {})
    assert "relief.before_start is refuse" in (found.refused or "")
    plan = msgspec.structs.replace(preferred_plan(config), context_length=1024)
    assert look(config, plan, REFUSE, {}).refused is None


def test_off_and_the_unknown_change_nothing(config: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = preferred_plan(config)
    as_it_is = Prepared(tuple(COMMAND), plan)
    assert look(config, plan, OFF, {}) == as_it_is
    damaged = tmp_path / "m.gguf"
    damaged.write_bytes(b"GGUF")
    assert look(msgspec.structs.replace(config, model=str(damaged)), plan, FIT, {}) == as_it_is
    other = SuperviseProcess(command=["other", *COMMAND[1:]])
    assert look(msgspec.structs.replace(config, supervise=other), plan, FIT, {}).plan == plan

    def unknown(*_: Any, **__: Any) -> MachineFacts:
        raise MachineError("no meminfo")

    monkeypatch.setattr(launching, "read_machine", unknown)
    assert look(config, plan, FIT, {}) == as_it_is


def test_a_real_program_is_asked_for_its_flags(
    config: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(obstacles, "is_taken", lambda host, port: False)
    program = tmp_path / "llama-server"
    flags = "".join(f"--flag-{letter} N   a flag\\n" for letter in "abcdefghijkl")
    program.write_text(f"#!/bin/sh\nprintf -- '-m, --model FNAME   the model\\n{flags}'\n")
    program.chmod(0o755)
    supervise = SuperviseProcess(command=[str(program), *COMMAND[1:]])
    found = look(msgspec.structs.replace(config, supervise=supervise), preferred_plan(config), OFF, {})
    assert found.command == (str(program), *COMMAND[1:-2])
    assert found.said == f"-ctxcp is left out: this build of {program} does not know it"


def test_the_limit_is_that_of_the_cgroup_it_is_started_in(config: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    here = launching.read_machine(1, frozenset(), cgroup=None)
    monkeypatch.setattr(launching, "read_machine", lambda pid, cpus, cgroup: asked.append(cgroup) or here)
    look(config, preferred_plan(config), FIT, {})
    assert asked == ["/sys/fs/cgroup/x"]


def test_it_is_looked_at_off_the_loop(config: Backend) -> None:
    workers = HeldWorkers()
    launch = Launching(workers, lambda: FIT)  # type: ignore[arg-type]
    plan, got = preferred_plan(config), []
    launch.prepare(config, plan, got.append)
    assert got == []
    launch.prepare(config, plan, got.append)
    assert got == [Prepared(tuple(COMMAND), plan)], "the one before has not answered"
    workers.finish("preparing", really=True)
    assert got[1].plan.context_length < 262144
    launch.prepare(config, plan, got.append)
    workers.finish("preparing", OSError("broken"))
    assert got[2] == Prepared(tuple(COMMAND), plan)


def test_what_lets_it_not_start_is_found_first_and_remembered(config: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = msgspec.structs.replace(config, model="/no/such.gguf")
    found = look(gone, preferred_plan(config), FIT, {})
    assert found.obstacle == Obstacle(Cause.MODEL_MISSING, "its model /no/such.gguf is not there")
    assert (found.said, found.refused) == (None, None)

    asked = []
    monkeypatch.setattr(obstacles, "is_taken", lambda host, port: True)
    monkeypatch.setattr(obstacles, "who_listens", asked.append)
    workers, got = HeldWorkers(), []
    launch = Launching(workers, lambda: FIT)  # type: ignore[arg-type]
    for _ in range(3):
        launch.prepare(config, preferred_plan(config), got.append)
        workers.finish("preparing", really=True)
    assert [each.obstacle.cause for each in got] == [Cause.PORT_TAKEN] * 3
    assert asked == [8080], "all open files are looked at once"
