"""What somebody else changed is theirs for the rest of the boot, until a person says otherwise."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.fake_kernel import BOOT_ID, FakeKernel, usual_kernel
from tuning_scenes import MOE, THP, VM, steps_for

from moetuned.host import durable_file
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Cell
from moetuned.state import tuning
from moetuned.state.tuning_change import recorded
from moetuned.state.undo_journal import JournalError, UndoJournal, open_journal, read_journal

PRESSURE, NAME = VM + "vfs_cache_pressure", "vm.vfs_cache_pressure"
LEFT = "somebody changed it to 77 after moetuned had set it; moetuned leaves it alone until `moetunectl tune apply`"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "undo.jsonl")


def apply(kernel: FakeKernel, path: str, wanted: Tuning = MOE, *, by_hand: bool = False) -> TunableView:
    """By a process of its own; the view of the setting that somebody changes."""
    with open_journal(path, BOOT_ID) as journal:
        steps = steps_for(kernel, wanted, journal)
        return next(v for v in tuning.apply(kernel, journal, steps, by_hand=by_hand) if v.name == NAME)


def confirm(kernel: FakeKernel, journal: UndoJournal) -> None:
    tuning.confirm_drift(kernel, journal, steps_for(kernel, MOE, journal), [NAME])


def yielded_by_looks(kernel: FakeKernel, path: str) -> None:
    apply(kernel, path)
    kernel.foreign_write(PRESSURE, "77")
    with open_journal(path, BOOT_ID) as journal:
        confirm(kernel, journal)


def yielded_by_rollback(kernel: FakeKernel, path: str) -> None:
    apply(kernel, path)
    kernel.foreign_write(PRESSURE, "77")
    with open_journal(path, BOOT_ID) as journal:
        tuning.rollback(kernel, journal)


def yielded_by_hand(kernel: FakeKernel, path: str) -> None:
    apply(kernel, path)
    kernel.foreign_write(PRESSURE, "77")
    view = apply(kernel, path, by_hand=True)
    assert view.state == "drifted"
    assert view.detail.endswith("left alone; `moetunectl tune apply` once more sets it again")


WAYS = [yielded_by_looks, yielded_by_rollback, yielded_by_hand]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_yielded_is_left_alone_by_every_start_and_rollback(
    way: Callable[[FakeKernel, str], None], path: str
) -> None:
    kernel = usual_kernel()
    way(kernel, path)
    count = kernel.writes().count((PRESSURE, "50"))
    for _ in range(2):
        view = apply(kernel, path)
        assert (view.state, view.now, view.detail) == ("yielded", "77", LEFT)
        with open_journal(path, BOOT_ID) as journal:
            seen = tuning.verify(kernel, journal.held, steps_for(kernel), yields=journal.yields)
            assert next(v for v in seen if v.name == NAME).state == "yielded"
            tuning.rollback(kernel, journal)
        assert os.path.exists(path)
    assert kernel.writes().count((PRESSURE, "50")) == count
    assert kernel.foreign_read(PRESSURE) == "77\n"


@pytest.mark.parametrize("way", WAYS)
def test_a_person_takes_it_up_again(way: Callable[[FakeKernel, str], None], path: str) -> None:
    kernel = usual_kernel()
    way(kernel, path)
    view = apply(kernel, path, by_hand=True)
    assert (view.state, view.now, view.original) == ("applied", "50", "77"), "theirs is what comes back now"
    assert apply(kernel, path).state == "applied"
    with open_journal(path, BOOT_ID) as journal:
        assert journal.yields == {}
        tuning.rollback(kernel, journal)
    assert kernel.foreign_read(PRESSURE) == "77\n"
    assert not os.path.exists(path)


@pytest.mark.parametrize("value", [40, "at-most 40", "at-least 200"])
def test_another_wish_in_the_config_takes_it_up_again(value: int | str, path: str) -> None:
    kernel = usual_kernel()
    yielded_by_looks(kernel, path)
    wanted = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={NAME: value})
    assert apply(kernel, path, wanted).state == "applied"
    assert kernel.foreign_read(PRESSURE).strip() == str(value).split()[-1]


def test_back_from_the_config_to_the_profile_is_another_wish(path: str) -> None:
    kernel = usual_kernel()
    own = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={NAME: 40})
    apply(kernel, path, own)
    kernel.foreign_write(PRESSURE, "77")
    with open_journal(path, BOOT_ID) as journal:
        tuning.confirm_drift(kernel, journal, steps_for(kernel, own, journal), [NAME])
    assert apply(kernel, path, own).state == "yielded"
    assert apply(kernel, path).state == "applied"


def test_a_yielded_value_that_will_do_is_in_order(path: str) -> None:
    kernel = usual_kernel()
    yielded_by_looks(kernel, path)
    kernel.foreign_write(PRESSURE, "30")
    assert apply(kernel, path).state == "already"
    kernel.foreign_write(PRESSURE, "90")
    assert (apply(kernel, path).state, kernel.foreign_read(PRESSURE)) == ("yielded", "90\n")


def test_one_look_that_was_wrong_yields_nothing(path: str) -> None:
    kernel = usual_kernel()
    apply(kernel, path)
    with open_journal(path, BOOT_ID) as journal:
        confirm(kernel, journal)
        assert (journal.yields, NAME in journal.held) == ({}, True)


def test_what_the_plan_does_not_name_is_yielded_as_it_was_asked_for(path: str) -> None:
    kernel = usual_kernel()
    apply(kernel, path)
    kernel.foreign_write(PRESSURE, "77")
    with open_journal(path, BOOT_ID) as journal:
        tuning.confirm_drift(kernel, journal, (), [NAME, "vm.never_held"])
        record = journal.yields[NAME]
        assert (record.value.value, record.intended.value, record.asked_by) == ("77", "50", "profile moe-offload")


def test_a_full_disk_takes_no_record_and_nothing_is_lost(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = usual_kernel()
    before = kernel.settings()
    apply(kernel, path)
    kernel.foreign_write(PRESSURE, "77")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_journal(path, BOOT_ID) as journal:
        monkeypatch.setattr(durable_file.os, "pwrite", full)
        confirm(kernel, journal)
        assert journal.yields == {}
        view = next(v for v in tuning.rollback(kernel, journal) if v.name == NAME)
        assert view.state == "drifted"
    assert kernel.settings() == before | {PRESSURE: "77\n"}


def test_after_a_reboot_nobody_remembers(path: str) -> None:
    yielded_by_rollback(usual_kernel(), path)
    with open_journal(path, "another-boot") as journal:
        assert (journal.yields, journal.held) == ({}, {})
    assert not os.path.exists(path)
    assert apply(usual_kernel(), path).state == "applied"


def test_the_file_does_not_grow_with_every_restart(path: str) -> None:
    kernel = usual_kernel()
    yielded_by_rollback(kernel, path)
    size = os.path.getsize(path)
    for _ in range(3):
        apply(kernel, path)
        with open_journal(path, BOOT_ID) as journal:
            tuning.rollback(kernel, journal)
        assert os.path.getsize(path) == size
    assert sorted(os.listdir(os.path.dirname(path))) == ["undo.jsonl"]


def test_a_setting_that_nobody_asked_for_by_name_is_not_yielded(path: str) -> None:
    """As a measurement borrows one: nothing would ever apply it again."""
    kernel = usual_kernel()
    place = steps_for(kernel)[-1].wanted.spec.place
    with open_journal(path, BOOT_ID) as journal:
        journal.applied(
            journal.intend("borrowed", place, Cell(PRESSURE, "100"), Cell(PRESSURE, "1")), Cell(PRESSURE, "1")
        )
        kernel.foreign_write(PRESSURE, "77")
        assert [view.state for view in tuning.rollback(kernel, journal)] == ["drifted"]
    assert not os.path.exists(path)


def test_a_damaged_journal_is_kept_beside_what_is_yielded(path: str) -> None:
    kernel = usual_kernel()
    yielded_by_looks(kernel, path)
    with open(path, "ab") as file:
        file.write(b"rubbish\n")
    with open_journal(path, BOOT_ID) as journal:
        tuning.rollback(kernel, journal)
    assert b"rubbish" in Path(path + ".damaged").read_bytes()
    left = read_journal(path, BOOT_ID)
    assert (left.problems, list(left.yields)) == ((), [NAME])


def test_recorded_says_whether_it_could_be() -> None:
    def full() -> None:
        raise JournalError("full")

    assert recorded(full) is False
    assert recorded(lambda: None) is True


def test_thp_is_yielded_like_everything_else(path: str) -> None:
    kernel = usual_kernel()
    apply(kernel, path)
    kernel.foreign_write(THP, "always")
    with open_journal(path, BOOT_ID) as journal:
        tuning.confirm_drift(kernel, journal, steps_for(kernel, MOE, journal), ["transparent_hugepage"])
        views = {view.name: view for view in tuning.rollback(kernel, journal)}
    assert "transparent_hugepage" not in views
    assert kernel.foreign_read(THP).startswith("[always]")
    assert kernel.foreign_read(VM + "min_free_kbytes") == "67584\n"
