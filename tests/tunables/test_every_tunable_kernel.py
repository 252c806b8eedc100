"""Every tunable that this machine has, on the real kernel: applied, checked, drifted, given back; and the whole machine is as before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fakes.own_disk import mounted_loop_device
from fakes.own_settings import MIN_FREE, THP, own_settings
from fakes.whole_machine import changed, still_settings

from moetuned import tunables
from moetuned.host.fs import RealFS
from moetuned.host.tunable_files import read_tunable, write_tunable
from moetuned.parse.tunable_text import parse_choices
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Bound, Cell, Codec, ModelTarget, PlannedStep, StepKind, Targets, TunableSpec
from moetuned.state import tuning
from moetuned.state.undo_journal import UndoJournal, open_journal, read_boot_id

pytestmark = pytest.mark.kernel

NAMES = [name for name in tunables.module_names() if not tunables.load(name).spec.per_device]
OF_A_DISK = ("nr_requests", "read_ahead_kb", "scheduler")


@pytest.fixture
def real() -> Iterator[RealFS]:
    with own_settings() as fs:
        yield fs


@pytest.fixture
def own_disk(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The name of a disk of the test's own and a model on it."""
    with mounted_loop_device(tmp_path) as (name, model):
        yield name, str(model)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[UndoJournal]:
    with open_journal(str(tmp_path / "state" / "undo.jsonl"), read_boot_id(RealFS())) as made:
        try:
            yield made
        finally:
            tuning.rollback(RealFS(), made)  # also what a test that failed has left


def asking(spec: TunableSpec, value: int | str) -> Tuning:
    if spec.config_key.startswith("tuning.sysctl."):
        return Tuning(profile=Profile.MOE_OFFLOAD, sysctl={spec.name: value})
    return Tuning(profile=Profile.MOE_OFFLOAD, **{spec.config_key.removeprefix("tuning."): value})  # type: ignore[arg-type]


def step_of(real: RealFS, spec: TunableSpec, value: int | str, targets: Targets = Targets()) -> PlannedStep:  # noqa: B008
    steps, problems = tunables.plan_tuning(real, asking(spec, value), targets)
    assert problems == ()
    (step,) = [
        each
        for each in steps
        if each.wanted.spec.name == spec.name or each.wanted.spec.name.startswith(f"{spec.name} ")
    ]
    return step


def others(spec: TunableSpec, now: str, choices: Sequence[str] = ()) -> tuple[int | str, int | str]:
    """Two values that do not stand there."""
    if spec.place.codec is Codec.CHOICE:
        there_are = [choice for choice in choices if choice != now]
        if len(there_are) < 2:
            pytest.skip(f"this kernel offers only {', '.join(choices)}")
        return there_are[0], there_are[1]
    number, highest = int(now), spec.highest if spec.highest is not None else 2**31 - 1
    free = [each for each in (number + 8, number + 16, number - 8, number - 16, 1, 0, 2) if each != number]
    allowed = [each for each in free if (spec.lowest or 0) <= each <= highest]
    return allowed[0], allowed[1] if len(allowed) > 1 else number


def only(views: Sequence[TunableView]) -> TunableView:
    (view,) = views
    return view


def there_and_back(
    real: RealFS, journal: UndoJournal, spec: TunableSpec, targets: Targets, place_path: str | None = None
) -> None:
    place = spec.place if place_path is None else type(spec.place)(place_path, spec.place.codec)
    before = read_tunable(real, place)
    if before.cell is None:
        pytest.skip(before.unknown or "not to be had")
    want, foreign = others(spec, before.cell.value, before.choices)
    step = step_of(real, spec, want, targets)
    assert step.wanted.spec.place.path == place.path, "no disk of the machine"
    assert (step.kind, step.now) == (StepKind.WRITE, before.cell)

    view = only(tuning.apply(real, journal, [step]))
    assert (view.state, view.now, view.original) == ("applied", str(want), before.cell.value)
    assert read_tunable(real, place).cell == Cell(place.path, str(want))
    assert only(tuning.verify(real, journal.held, [step])).state == "applied"

    write_tunable(real, place, Cell(place.path, str(foreign)))
    assert only(tuning.verify(real, journal.held, [step])).state == "drifted"
    write_tunable(real, place, Cell(place.path, str(want)))

    assert tuning.rollback(real, journal)[0].state == "restored"
    assert read_tunable(real, place).cell == before.cell
    assert journal.held == {}


@pytest.mark.parametrize("name", NAMES)
def test_applied_verified_drifted_given_back(real: RealFS, journal: UndoJournal, name: str) -> None:
    machine = still_settings()
    there_and_back(real, journal, tunables.load(name).spec, Targets())
    assert changed(machine) == {}


@pytest.mark.parametrize("name", OF_A_DISK)
def test_the_same_of_a_disk(real: RealFS, own_disk: tuple[str, str], journal: UndoJournal, name: str) -> None:
    disk, model = own_disk
    queue = f"/sys/block/{disk}/queue"
    files = [f"{queue}/{file}" for file in ("scheduler", "nr_requests", "wbt_lat_usec", "read_ahead_kb")]
    real.write_text(f"{queue}/nr_requests", "64")
    real.write_text(f"{queue}/read_ahead_kb", "256")
    before = [real.read_text(file) for file in files]
    path = f"/sys/block/{disk}/bdi/{name}" if name == "read_ahead_kb" else f"{queue}/{name}"
    there_and_back(real, journal, tunables.load(name).spec, Targets((ModelTarget(model),)), path)
    assert [real.read_text(file) for file in files] == before, "and what changed along with it"


@pytest.mark.parametrize(
    "name", [name for name in NAMES if tunables.load(name).spec.config_key.startswith("tuning.sysctl.")]
)
@pytest.mark.parametrize("bound", [Bound.AT_LEAST, Bound.AT_MOST])
def test_at_least_and_at_most(real: RealFS, journal: UndoJournal, name: str, bound: Bound) -> None:
    spec = tunables.load(name).spec
    cell = read_tunable(real, spec.place).cell
    assert cell is not None
    number = int(cell.value)
    lowest, highest = spec.lowest or 0, spec.highest if spec.highest is not None else 2**31 - 1
    inside, outside = (number - 1, number + 1) if bound is Bound.AT_LEAST else (number + 1, number - 1)
    machine = still_settings()
    for value in (number, inside):
        if lowest <= value <= highest:
            step = step_of(real, spec, f"{bound} {value}")
            assert step.kind is StepKind.ALREADY, f"{value} for {number}"
            assert only(tuning.apply(real, journal, [step])).state == "already"
    if lowest <= outside <= highest:
        step = step_of(real, spec, f"{bound} {outside}")
        assert only(tuning.apply(real, journal, [step])).now == str(outside)
        assert tuning.rollback(real, journal)[0].state == "restored"
    assert changed(machine) == {}


def moetunectl(*arguments: str, journal: str, code: int = 0, part: str = "tuning") -> dict[str, dict[str, str]]:
    program = [sys.executable, "-c", "from moetuned.cli.main import main; main()"]
    done = subprocess.run(
        [*program, "tune", *arguments, "--json", "--journal", journal],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return {view["name"]: view for view in json.loads(done.stdout)[part]}


def test_all_of_it_at_once_and_the_whole_machine_is_as_before(
    real: RealFS, own_disk: tuple[str, str], tmp_path: Path
) -> None:
    disk, model = own_disk
    queue = f"/sys/block/{disk}/queue"
    choices = parse_choices(real.read_text(f"{queue}/scheduler"))
    config = tmp_path / "moetuned.yaml"
    config.write_text(
        f"""tuning:
  profile: moe-offload
  thp_defrag: never
  khugepaged_defrag: 0
  lru_gen_min_ttl_ms: 1000
  read_ahead: 64
  scheduler: {"bfq" if "bfq" in choices else "mq-deadline"}
  nr_requests: 48
  sysctl:
    vm.min_free_kbytes: {int(real.read_text(MIN_FREE)) + 4096}
    vm.swappiness: at-most 30
    vm.page-cluster: 1
    vm.watermark_scale_factor: at-least 50
    vm.max_map_count: at-least 300000
backends: [{{name: a, model: {model}}}]
"""
    )
    config.chmod(0o600)
    machine = still_settings()
    own = {
        file: real.read_text(f"{queue}/{file}")
        for file in ("scheduler", "nr_requests", "wbt_lat_usec", "read_ahead_kb")
    }
    assert len(machine) > 500
    journal = str(tmp_path / "state" / "undo.jsonl")
    planned = moetunectl("plan", "--config", str(config), journal=journal, part="steps")
    of_disks = {name for name in planned if name.startswith(OF_A_DISK)}
    assert of_disks == {f"{name} {disk}" for name in OF_A_DISK}, "no disk of the machine"
    try:
        applied = moetunectl("apply", "--config", str(config), journal=journal)
        allowed = {"applied", "already", "skipped"}
        assert {name: view["state"] for name, view in applied.items() if view["state"] not in allowed} == {}
        assert applied[f"nr_requests {disk}"]["now"] == "48"
        assert {"vm.min_free_kbytes", "vm.page-cluster", "khugepaged_defrag"} <= set(applied)
        assert changed(machine) != {}
        moetunectl("verify", "--config", str(config), journal=journal)
    finally:
        restored = moetunectl("rollback", journal=journal)
    assert {view["state"] for view in restored.values()} == {"restored"}
    assert changed(machine) == {}
    assert {file: real.read_text(f"{queue}/{file}") for file in own} == own
    assert not os.path.exists(journal)


def test_huge_pages_leave_a_reserve_that_a_person_chose(real: RealFS, journal: UndoJournal) -> None:
    """Putting huge pages back makes the kernel raise vm.min_free_kbytes above what somebody had written."""
    if not real.exists(THP):
        pytest.skip("this kernel has no transparent huge pages")
    real.write_text(THP, "madvise")
    chosen = str(int(real.read_text(MIN_FREE)) // 2)
    real.write_text(MIN_FREE, chosen)
    machine = still_settings()
    step = step_of(real, tunables.load("transparent_hugepage").spec, "never")
    assert only(tuning.apply(real, journal, [step])).state == "applied"
    tuning.rollback(real, journal)
    assert real.read_text(MIN_FREE).strip() == chosen
    assert changed(machine) == {}
