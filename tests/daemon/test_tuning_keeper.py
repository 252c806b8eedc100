"""Kernel settings over a daemon's life: applied, kept through a crash, checked for drift, given back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.fake_kernel import FakeKernel, Text, usual_kernel

from moetuned.daemon.tuning_keeper import TuningKeeper, line_of
from moetuned.schema.config import Config, Profile, Tuning
from moetuned.schema.snapshot import TunableView

OFFLOAD = Config(tuning=Tuning(profile=Profile.MOE_OFFLOAD))
PRESSURE = "/proc/sys/vm/vfs_cache_pressure"


@pytest.fixture
def kernel() -> FakeKernel:
    return usual_kernel()


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "undo.jsonl")


def test_observing_makes_nothing_and_changes_nothing(kernel: FakeKernel, journal: str) -> None:
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(Config())
    assert keeper.check() == ()
    keeper.rollback()
    assert kernel.writes() == []
    assert not os.path.exists(os.path.dirname(journal))
    assert keeper.views == ()


def test_applied_and_given_back(kernel: FakeKernel, journal: str) -> None:
    before = kernel.settings()
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    assert {view.state for view in keeper.views} == {"applied"}
    assert kernel.settings() != before
    keeper.rollback()
    assert kernel.settings() == before
    assert {view.state for view in keeper.views} == {"restored"}
    assert not os.path.exists(journal)
    keeper.rollback()


def test_the_originals_outlive_a_daemon_that_dies(kernel: FakeKernel, journal: str) -> None:
    before = kernel.settings()
    first = TuningKeeper(kernel, journal)
    first.apply(OFFLOAD)
    first._journal.close()  # what the kernel does for a process that is killed
    second = TuningKeeper(kernel, journal)
    second.apply(OFFLOAD)
    assert next(view for view in second.views if "vfs_cache" in view.name).original == "100"
    second.rollback()
    assert kernel.settings() == before


def test_what_a_dead_daemon_left_is_given_back_by_one_that_observes(kernel: FakeKernel, journal: str) -> None:
    before = kernel.settings()
    first = TuningKeeper(kernel, journal)
    first.apply(OFFLOAD)
    first._journal.close()
    second = TuningKeeper(kernel, journal)
    second.apply(Config())
    assert kernel.settings() == before
    second.rollback()


def test_a_reload_gives_back_what_is_no_longer_wanted(kernel: FakeKernel, journal: str) -> None:
    before = kernel.settings()
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    keeper.apply(Config())
    assert kernel.settings() == before
    keeper.rollback()


def test_drift_is_told_once_and_left_alone(kernel: FakeKernel, journal: str) -> None:
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    assert keeper.check() == ()
    kernel.foreign_write(PRESSURE, "70")
    assert [view.name for view in keeper.check()] == ["vm.vfs_cache_pressure"]
    assert keeper.check() == ()
    keeper.rollback()
    assert kernel.foreign_read(PRESSURE) == "70\n"


def test_a_journal_that_cannot_be_had_changes_nothing_and_says_so(kernel: FakeKernel, journal: str) -> None:
    before = kernel.settings()
    holder = TuningKeeper(kernel, journal)
    holder.apply(OFFLOAD)
    changed = kernel.settings()
    other = TuningKeeper(kernel, journal)
    other.apply(OFFLOAD)
    assert "no setting is changed" in other.notes[0]
    assert kernel.settings() == changed
    other.rollback()
    assert kernel.settings() == changed
    holder.rollback()
    assert kernel.settings() == before


def test_a_setting_the_kernel_does_not_have_is_skipped(kernel: FakeKernel, journal: str) -> None:
    del kernel.files[PRESSURE]
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    states = {view.name: view.state for view in keeper.views}
    assert states.pop("vm.vfs_cache_pressure") == "skipped"
    assert set(states.values()) == {"applied"}
    keeper.rollback()


def test_without_a_boot_id_nothing_is_changed(kernel: FakeKernel, journal: str) -> None:
    kernel.files["/proc/sys/kernel/random/boot_id"] = Text("")
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    assert kernel.writes() == []
    assert "boot id" in keeper.notes[0]
    assert {view.state for view in keeper.views} == {"failed"}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (TunableView("vm.x", "applied", "10", "10", "20"), "vm.x: applied, 10 (it was 20)"),
        (
            TunableView("vm.x", "already", "10", "10", None, "profile moe-offload"),
            "vm.x: already, 10: profile moe-offload",
        ),
        (TunableView("vm.x", "restored", "10", "20", "20"), "vm.x: restored, 20"),
        (TunableView("vm.x", "skipped", "10", None, None, "not there"), "vm.x: skipped: not there"),
    ],
)
def test_a_setting_in_the_log(view: TunableView, expected: str) -> None:
    assert line_of(view) == expected
