"""memory.low and io.weight on a real cgroup v2 tree: of a cgroup of the test's own, and of a unit that systemd runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moetuned import tunables
from moetuned.host.fs import RealFS
from moetuned.host.systemd_booted import is_booted
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.tunable import CgroupTarget, PlannedStep, StepKind, Targets
from moetuned.state import tuning
from moetuned.state.undo_journal import UndoJournal, open_journal, read_boot_id

pytestmark = pytest.mark.kernel

ROOT = Path("/sys/fs/cgroup")
LOW_BYTES = 64 << 20
NAME = f"moetuned-test-{os.getpid()}"


@pytest.fixture(autouse=True)
def _unified() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes cgroups")
    controllers = ROOT / "cgroup.subtree_control"
    if not controllers.exists() or "memory" not in controllers.read_text().split():
        pytest.skip("needs cgroup version 2 with the memory controller")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[UndoJournal]:
    with open_journal(str(tmp_path / "state" / "undo.jsonl"), read_boot_id(RealFS())) as made:
        try:
            yield made
        finally:
            tuning.rollback(RealFS(), made)


@pytest.fixture
def own_cgroup() -> Iterator[Path]:
    """moetuned-test-N/llama, with the memory controller, and io where the machine gives it."""
    above = ROOT / NAME
    above.mkdir()
    given = [name for name in ("memory", "io") if name in (ROOT / "cgroup.subtree_control").read_text().split()]
    try:
        (above / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in given))
        (above / "llama").mkdir()
        (above / "neighbour").mkdir()
        yield above / "llama"
    finally:
        for path in (above / "llama", above / "neighbour", above):
            with contextlib.suppress(FileNotFoundError):
                path.rmdir()


@pytest.fixture
def own_unit() -> Iterator[Path]:
    """The cgroup of a service in a slice of its own."""
    if not is_booted():
        pytest.skip("needs systemd")
    name = NAME.replace("-", "")
    run("systemd-run", "--quiet", f"--unit={name}.service", f"--slice={name}.slice", "sleep", "600")
    try:
        yield ROOT / f"{name}.slice" / f"{name}.service"
    finally:
        for unit in (f"{name}.service", f"{name}.slice"):
            subprocess.run(["systemctl", "stop", unit], check=False, timeout=60)
            shutil.rmtree(f"/run/systemd/system.control/{unit}.d", ignore_errors=True)
        run("systemctl", "daemon-reload")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def steps_of(directory: Path, weight: int | None = None) -> dict[str, PlannedStep]:
    target = CgroupTarget("llama", str(directory), memory_low_bytes=LOW_BYTES, io_weight=weight)
    steps, problems = tunables.plan_tuning(RealFS(), Tuning(profile=Profile.MOE_OFFLOAD), Targets(cgroups=(target,)))
    assert problems == ()
    return {
        step.wanted.spec.name: step for step in steps if step.wanted.spec.name.startswith(("memory_low ", "io_weight "))
    }


def low(directory: Path) -> str:
    return (directory / "memory.low").read_text().strip()


def test_a_cgroup_that_is_nobodys(own_cgroup: Path, journal: UndoJournal) -> None:
    above, neighbour = own_cgroup.parent, own_cgroup.parent / "neighbour"
    (neighbour / "memory.low").write_text("4096")
    steps = steps_of(own_cgroup)
    assert list(steps) == [f"memory_low {above.name}", f"memory_low {above.name}/llama"]
    views = tuning.apply(RealFS(), journal, tuple(steps.values()))
    assert {view.state for view in views} == {"applied"}
    assert (low(above), low(own_cgroup), low(neighbour)) == (str(LOW_BYTES + 4096), str(LOW_BYTES), "4096")
    again = steps_of(own_cgroup)
    assert {step.kind for step in again.values()} == {StepKind.ALREADY}
    (neighbour / "memory.low").write_text("8192")
    assert steps_of(own_cgroup)[f"memory_low {above.name}"].wanted.cell.value == str(LOW_BYTES + 8192)
    assert {view.state for view in tuning.rollback(RealFS(), journal)} == {"restored"}
    assert (low(above), low(own_cgroup), low(neighbour)) == ("0", "0", "8192")


def test_more_above_than_is_needed_is_not_taken_away(own_cgroup: Path, journal: UndoJournal) -> None:
    above = own_cgroup.parent
    (above / "memory.low").write_text("max")
    views = tuning.apply(RealFS(), journal, tuple(steps_of(own_cgroup).values()))
    assert [view.state for view in views] == ["already", "applied"]
    assert low(above) == "max"


def test_the_weight_of_a_cgroup(own_cgroup: Path, journal: UndoJournal) -> None:
    file = own_cgroup / "io.weight"
    step = steps_of(own_cgroup, 300)[f"io_weight {own_cgroup.parent.name}/llama"]
    if not file.exists():
        assert step.kind is StepKind.SKIPPED
        assert "does not give it the io controller" in step.reason
        return
    assert tuning.apply(RealFS(), journal, [step])[0].state == "applied"
    assert file.read_text() == "default 300\n"
    assert tuning.rollback(RealFS(), journal)[0].state == "restored"
    assert file.read_text() == "default 100\n"


def test_a_unit_is_changed_through_systemd_and_stays_so(own_unit: Path, journal: UndoJournal) -> None:
    steps = steps_of(own_unit)
    assert [step.wanted.spec.place.unit for step in steps.values()] == [own_unit.parent.name, own_unit.name]
    views = tuning.apply(RealFS(), journal, tuple(steps.values()))
    assert {(view.state, view.now) for view in views} == {("applied", str(LOW_BYTES))}
    assert low(own_unit) == low(own_unit.parent) == str(LOW_BYTES)
    shown = run("systemctl", "show", "--property=MemoryLow", "--value", own_unit.name, own_unit.parent.name).split()
    assert shown == [str(LOW_BYTES)] * 2
    run("systemctl", "daemon-reload")
    run("systemctl", "set-property", "--runtime", own_unit.name, "CPUWeight=50")
    assert low(own_unit) == str(LOW_BYTES), "systemd realised the unit anew"
    assert {view.state for view in tuning.verify(RealFS(), journal.held, tuple(steps.values()))} == {"applied"}
    assert {view.state for view in tuning.rollback(RealFS(), journal)} == {"restored"}
    assert low(own_unit) == low(own_unit.parent) == "0"


def test_a_unit_with_a_weight(own_unit: Path, journal: UndoJournal) -> None:
    name = f"io_weight {own_unit.parent.name}/{own_unit.name}"
    step = steps_of(own_unit, 300)[name]
    assert step.kind is StepKind.SKIPPED, "systemd gives a unit the io controller only when it is told to"
    assert f"IOAccounting=yes in {own_unit.name}" in step.reason
    run("systemctl", "set-property", "--runtime", own_unit.name, "IOAccounting=yes")
    if not (own_unit / "io.weight").exists():
        pytest.skip("this kernel has no io.weight")
    step = steps_of(own_unit, 300)[name]
    assert tuning.apply(RealFS(), journal, [step])[0].state == "applied"
    assert (own_unit / "io.weight").read_text() == "default 300\n"
    assert tuning.rollback(RealFS(), journal)[0].state == "restored"
    assert (own_unit / "io.weight").read_text() == "default 100\n"


def test_a_unit_that_has_gone_is_said(own_unit: Path, journal: UndoJournal) -> None:
    steps = steps_of(own_unit)
    tuning.apply(RealFS(), journal, tuple(steps.values()))
    run("systemctl", "stop", own_unit.name)
    views = {view.name: view for view in tuning.rollback(RealFS(), journal)}
    assert views[f"memory_low {own_unit.parent.name}/{own_unit.name}"].state == "skipped"
    assert journal.held == {}
