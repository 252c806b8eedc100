"""The stand-in with injected faults: a few drawn runs, or RUNS of them. `make relief-matrix RUNS=200` runs many and prints a table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import relief_faults
import relief_managed
from relief_checks import row, table, violations
from relief_faults import Fault
from relief_managed import UnitFault
from relief_place import NoPlace, place
from relief_script import Does

SAMPLE = (4, 6, 9, 11, 12)
"""Among them: every fault but a daemon that is killed once."""
MANAGED_SAMPLE = (2, 17, 18, 20)
"""A systemctl that hangs; a unit that its owner stops in the middle; a script that restarts nothing; a killed daemon that is refused."""
SEEDS = range(1, int(os.environ["RUNS"]) + 1) if "RUNS" in os.environ else SAMPLE
MANAGED_SEEDS = SEEDS if "RUNS" in os.environ else MANAGED_SAMPLE


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[relief_faults.Disk]:
    try:
        with place():
            pass
    except NoPlace as error:
        pytest.skip(str(error))
    with relief_faults.own_disk(tmp_path_factory.mktemp("disk")) as found:
        yield found


@pytest.mark.backend
@pytest.mark.kernel
@pytest.mark.parametrize("seed", SEEDS)
def test_with_faults(disk: relief_faults.Disk, tmp_path: Path, seed: int) -> None:
    directory = tmp_path / "run"
    run = relief_faults.run(disk, directory, relief_faults.draw(seed))
    log = directory / "daemon.log"
    assert violations(run) == [], f"{table([row(run)])}\n{log.read_text() if log.exists() else ''}"


@pytest.mark.backend
@pytest.mark.kernel
@pytest.mark.parametrize("seed", MANAGED_SEEDS)
def test_with_a_manager_and_faults(disk: relief_faults.Disk, tmp_path: Path, seed: int) -> None:
    directory = tmp_path / "run"
    run = relief_managed.run(disk, directory, relief_managed.draw(seed))
    log = directory / "daemon.log"
    assert violations(run) == [], f"{table([row(run)])}\n{log.read_text() if log.exists() else ''}"


def test_the_draw_of_what_goes_wrong_with_a_manager() -> None:
    plans = [relief_managed.draw(seed) for seed in range(200)]
    assert plans == [relief_managed.draw(seed) for seed in range(200)]
    assert {fault for plan in plans for fault in plan.faults} == set(UnitFault)
    assert {plan.script for plan in plans} == {None, *Does}


def test_the_draw_is_the_same_for_a_seed_and_brings_every_fault() -> None:
    plans = [relief_faults.draw(seed) for seed in range(200)]
    assert plans == [relief_faults.draw(seed) for seed in range(200)]
    assert {fault for plan in plans for fault in plan.faults} == set(Fault)
    assert not any({Fault.RECORDS_FULL, Fault.RECORDS_READ_ONLY} <= plan.faults for plan in plans)
    assert all(len(plan.killed_after) == 2 for plan in plans if Fault.DAEMON_KILLED_TWICE in plan.faults)
