"""Machines as case files: what is there, and what the plan then does about each setting and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from fakes.fake_kernel import BOOT_ID, FakeKernel, Number, Text, add_cgroups, add_disk, usual_kernel

from moetuned import tunables
from moetuned.host.tuning_targets import find_targets
from moetuned.schema.config import Config
from moetuned.schema.tunable import Bound, ModelTarget, PlannedStep, StepKind
from moetuned.state import tuning
from moetuned.state.undo_journal import open_journal

CASES = sorted((Path(__file__).parent / "machines").glob("*.yaml"))


class Disk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    number: str
    read_ahead_kb: int = 128
    mount: str = ""
    rotational: bool = False


class Swap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: str = "partition"


class Planned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step of the plan; what is not given is not compared. `why` is a part of the reason."""

    step: StepKind
    now: str | None = None
    wanted: str | None = None
    bound: Bound | None = None
    why: str = ""


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`kernel` decides what there is; `gone`: paths (and all below) that are not there; `files`: what is written or put there.

    `devices`: numbers of files and device nodes; `tuning` and `backends` are the configuration's.
    """

    about: str
    kernel: str = "6.18.0"
    command_line: str = "quiet"
    gone: list[str] = []
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    mountinfo: list[str] = []
    disks: list[Disk] = []
    swaps: list[Swap] = []
    cgroups: list[str] = []
    cgroup_version: int = 2
    read_only: list[str] = []
    devices: dict[str, str] = {}
    tuning: dict[str, Any] = {}
    backends: list[dict[str, Any]] = []
    cgroup_of: dict[str, str] = {}
    slice_bytes: int | None = None
    plan: dict[str, Planned] = {}
    absent: list[str] = []


def kernel_of(machine: Machine) -> FakeKernel:
    made = usual_kernel()
    release = tuple(int(part) for part in machine.kernel.split(".")[:2])
    made.files["/proc/sys/kernel/osrelease"] = Text(f"{machine.kernel}\n")
    made.files["/proc/cmdline"] = Text(f"{machine.command_line}\n")
    if release < (5, 8):
        made.files["/proc/sys/vm/swappiness"] = Number(60, 0, 100)
    if release < (6, 1):
        del made.files["/sys/kernel/mm/lru_gen/min_ttl_ms"]
    for disk in machine.disks:
        add_disk(made, disk.name, disk.number, disk.read_ahead_kb, disk.mount, rotational=disk.rotational)
    if machine.mountinfo:
        table = made.files.get("/proc/self/mountinfo", Text("")).read()
        made.files["/proc/self/mountinfo"] = Text(table + "".join(f"{line}\n" for line in machine.mountinfo))
    if machine.swaps:
        head = made.files["/proc/swaps"].read()
        made.files["/proc/swaps"] = Text(
            head + "".join(f"{swap.name}\t\t\t\t{swap.kind}\t4194300\t\t0\t\t-2\n" for swap in machine.swaps)
        )
    if machine.cgroups:
        kind = "cgroup2" if machine.cgroup_version == 2 else "cgroup"
        add_cgroups(made, *machine.cgroups, kind=kind)
    for path, text in machine.files.items():
        if not isinstance(made.files.get(path), Text | None):
            made.foreign_write(path, text)
        else:
            made.files[path] = Text(text)
    made.links |= machine.links
    for gone in machine.gone:
        for path in [path for path in made.files if path == gone or path.startswith(gone + "/")]:
            del made.files[path]
    for point in machine.read_only:
        made.mount_read_only(point)
    return made


def plan_of(machine: Machine, kernel: FakeKernel) -> tuple[PlannedStep, ...]:
    config = msgspec.convert({"tuning": machine.tuning, "backends": machine.backends}, Config)

    def device_of(path: str) -> tuple[int, int]:
        for known, number in machine.devices.items():
            if path == known or path.startswith(known + "/"):
                major, minor = number.split(":")
                return int(major), int(minor)
        raise FileNotFoundError(2, "No such file or directory", path)

    targets = find_targets(
        config, machine.cgroup_of, lambda path: ModelTarget(path, machine.slice_bytes, "its header is not read here")
    )
    steps, problems = tunables.plan_tuning(kernel, config.tuning, targets, device_of)
    assert problems == ()
    return steps


@pytest.fixture(params=CASES, ids=[path.stem for path in CASES])
def machine(request: pytest.FixtureRequest) -> Machine:
    tree = yaml.safe_load(request.param.read_text(encoding="utf-8"))
    return msgspec.convert(tree, Machine)


def test_the_plan_of_a_machine(machine: Machine) -> None:
    kernel = kernel_of(machine)
    before = kernel.settings()
    steps = {step.wanted.spec.name: step for step in plan_of(machine, kernel)}
    assert kernel.settings() == before, "a plan changes nothing"
    assert machine.plan, "a case says what is planned"
    assert set(machine.plan) <= set(steps)
    assert set(machine.absent).isdisjoint(steps)
    for name, expected in machine.plan.items():
        step = steps[name]
        assert step.kind is expected.step, (name, step.reason)
        assert expected.bound in (None, step.wanted.bound), name
        if expected.now is not None:
            assert step.now is not None, (name, step.reason)
            assert step.now.value == expected.now, name
        if expected.wanted is not None:
            assert step.wanted.cell.value == expected.wanted, name
        assert expected.why in step.reason, (name, step.reason)
    for name, step in steps.items():
        assert step.reason, name
        if step.kind is StepKind.SKIPPED:
            assert " " in step.reason, f"{name} says why"


def test_the_plan_applies_and_goes_again(machine: Machine, tmp_path: Path) -> None:
    """What is planned is what happens: nothing fails, and a rollback leaves the machine as it was."""
    kernel = kernel_of(machine)
    before = kernel.settings()
    steps = plan_of(machine, kernel)
    with open_journal(str(tmp_path / "state" / "undo.jsonl"), BOOT_ID) as journal:
        views = tuning.apply(kernel, journal, steps)
        assert {view.name: view.detail for view in views if view.state == "failed"} == {}
        skipped = {step.wanted.spec.name for step in steps if step.kind is StepKind.SKIPPED}
        assert {view.name for view in views if view.state == "skipped"} == skipped
        tuning.rollback(kernel, journal)
    after = kernel.settings()
    assert {path: (text, after[path]) for path, text in before.items() if after[path] != text} == {}
