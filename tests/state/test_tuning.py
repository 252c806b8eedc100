"""Apply, verify and rollback against the fake kernel: tables, then every interleaving, then every crash."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from pathlib import Path

import pytest
from fakes.fake_kernel import BOOT_ID, FakeKernel, Number, usual_kernel

from moetuned import tunables
from moetuned.host import durable_file
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Cell, PlannedStep
from moetuned.state import tuning
from moetuned.state.undo_journal import UndoJournal, open_journal, read_journal

MOE = Tuning(profile=Profile.MOE_OFFLOAD)
VM = "/proc/sys/vm/"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
WANTED = {
    VM + "overcommit_memory": "1\n",
    VM + "dirty_ratio": "10\n",
    VM + "dirty_bytes": "0\n",
    VM + "dirty_background_ratio": "5\n",
    VM + "dirty_background_bytes": "0\n",
    VM + "vfs_cache_pressure": "50\n",
    THP: "always madvise [never]\n",
}


@pytest.fixture
def journal_path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "undo.jsonl")


def steps_for(kernel: FakeKernel, wanted: Tuning = MOE) -> tuple[PlannedStep, ...]:
    steps, problems = tunables.plan_tuning(kernel, wanted)
    assert problems == ()
    return steps


def apply(kernel: FakeKernel, journal: UndoJournal, wanted: Tuning = MOE) -> dict[str, TunableView]:
    return {view.name: view for view in tuning.apply(kernel, journal, steps_for(kernel, wanted))}


def states(views: object) -> dict[str, str]:
    values = views.values() if isinstance(views, dict) else views
    return {view.name: view.state for view in values}  # type: ignore[attr-defined]


def test_apply_writes_what_the_profile_wants_and_rollback_gives_all_back(journal_path: str) -> None:
    kernel = usual_kernel()
    before = kernel.settings()
    with open_journal(journal_path, BOOT_ID) as journal:
        assert set(states(apply(kernel, journal)).values()) == {"applied"}
        assert kernel.settings() == WANTED
        assert os.stat(journal_path).st_mode & 0o777 == 0o600
        assert os.stat(os.path.dirname(journal_path)).st_mode & 0o777 == 0o700
        restored = tuning.rollback(kernel, journal)
        assert set(states(restored).values()) == {"restored"}
        assert next(view.name for view in restored) == "vm.vfs_cache_pressure", "last changed, first restored"
    assert kernel.settings() == before
    assert not os.path.exists(journal_path)


def test_the_journal_is_on_disk_before_the_kernel_is_written(journal_path: str) -> None:
    kernel = usual_kernel()

    def look(operation: str, path: str) -> None:
        if operation == "write":
            held = read_journal(journal_path, BOOT_ID).held
            assert path in {entry.intended.path for entry in held.values() if not entry.settled}

    kernel.before = look
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
    assert len(kernel.writes()) == 5


def test_what_stands_as_wanted_already_is_not_written_and_not_ours(journal_path: str) -> None:
    kernel = usual_kernel()
    kernel.foreign_write(VM + "dirty_ratio", "10")
    with open_journal(journal_path, BOOT_ID) as journal:
        assert states(apply(kernel, journal))["vm.dirty_ratio"] == "already"
        assert "vm.dirty_ratio" not in journal.held
        steps = steps_for(kernel)
        kernel.foreign_write(VM + "dirty_ratio", "30")
        assert states(tuning.verify(kernel, journal.held, steps))["vm.dirty_ratio"] == "drifted"
        tuning.rollback(kernel, journal)
    assert kernel.foreign_read(VM + "dirty_ratio") == "30\n"


@pytest.mark.parametrize("kind", ["absent", "read-only mount", "EACCES", "EPERM", "EROFS"])
def test_what_cannot_be_set_here_is_skipped_with_its_reason(kind: str, journal_path: str) -> None:
    kernel = usual_kernel()
    path = VM + "vfs_cache_pressure"
    if kind == "absent":
        del kernel.files[path]
    elif kind == "read-only mount":
        kernel.mount_read_only("/proc/sys")
    else:
        kernel.fail("write", path, getattr(errno, kind))
    before = kernel.settings()
    with open_journal(journal_path, BOOT_ID) as journal:
        view = apply(kernel, journal)["vm.vfs_cache_pressure"]
        assert view.state == "skipped"
        assert path in view.detail
        assert view.original is None
        assert "vm.vfs_cache_pressure" not in journal.held
        tuning.rollback(kernel, journal)
    assert kernel.settings() == before
    assert not os.path.exists(journal_path)


def test_a_choice_the_kernel_does_not_offer_is_skipped(journal_path: str) -> None:
    kernel = usual_kernel()
    kernel.files[THP].words = ("always", "madvise")  # type: ignore[union-attr]
    with open_journal(journal_path, BOOT_ID) as journal:
        view = apply(kernel, journal)["transparent_hugepage"]
    assert (view.state, view.now) == ("skipped", "madvise")
    assert "always, madvise" in view.detail


def test_a_refused_value_fails_and_leaves_nothing_to_roll_back(journal_path: str) -> None:
    kernel = usual_kernel()
    kernel.fail("write", VM + "dirty_ratio", errno.EINVAL)
    with open_journal(journal_path, BOOT_ID) as journal:
        view = apply(kernel, journal)["vm.dirty_ratio"]
        assert (view.state, view.now, view.original) == ("failed", "20", None)
        assert "vm.dirty_ratio" not in journal.held
        again = tuning.verify(kernel, journal.held, steps_for(kernel), [view])
        assert {v.name: v.state for v in again}["vm.dirty_ratio"] == "failed", "it keeps saying why"


def test_a_write_the_kernel_ignores_is_no_success(journal_path: str) -> None:
    kernel = usual_kernel()
    kernel.files[VM + "vfs_cache_pressure"] = Number(100, adjust=lambda _value: 100)
    with open_journal(journal_path, BOOT_ID) as journal:
        view = apply(kernel, journal)["vm.vfs_cache_pressure"]
    assert (view.state, view.detail) == ("failed", "the kernel kept 100")


def test_a_value_the_kernel_adjusts_is_known_as_ours(journal_path: str) -> None:
    kernel = usual_kernel()
    kernel.files[VM + "vfs_cache_pressure"] = Number(100, adjust=lambda value: max(value, 64))
    with open_journal(journal_path, BOOT_ID) as journal:
        view = apply(kernel, journal)["vm.vfs_cache_pressure"]
        assert (view.state, view.now, view.wanted) == ("adjusted", "64", "50")
        count = len(kernel.writes())
        assert apply(kernel, journal)["vm.vfs_cache_pressure"].state == "adjusted"
        assert states(tuning.verify(kernel, journal.held, steps_for(kernel)))["vm.vfs_cache_pressure"] == "adjusted"
        assert len(kernel.writes()) == count
    with open_journal(journal_path, BOOT_ID) as journal:
        tuning.rollback(kernel, journal)
    assert kernel.foreign_read(VM + "vfs_cache_pressure") == "100\n"


def test_drift_is_reported_and_left_alone(journal_path: str) -> None:
    kernel = usual_kernel()
    with open_journal(journal_path, BOOT_ID) as journal:
        applied = tuple(apply(kernel, journal).values())
        kernel.foreign_write(VM + "dirty_ratio", "33")
        seen = tuning.verify(kernel, journal.held, steps_for(kernel), applied)
        assert [view.name for view in tuning.newly_drifted(applied, seen)] == ["vm.dirty_ratio"]
        assert tuning.newly_drifted(seen, seen) == ()
        view = apply(kernel, journal)["vm.dirty_ratio"]
        assert (view.state, view.now, view.original) == ("drifted", "33", "20")
        assert states(tuning.rollback(kernel, journal))["vm.dirty_ratio"] == "drifted"
    assert kernel.settings()[VM + "dirty_ratio"] == "33\n"
    assert not os.path.exists(journal_path)


@pytest.mark.parametrize("original_bytes", [(VM + "dirty_bytes", "1048576"), (VM + "dirty_background_bytes", "524288")])
def test_the_twin_that_was_in_force_is_restored(original_bytes: tuple[str, str], journal_path: str) -> None:
    kernel = usual_kernel()
    kernel.foreign_write(*original_bytes)
    before = kernel.settings()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        assert kernel.settings() == WANTED
        views = tuning.rollback(kernel, journal)
        name = original_bytes[0].rpartition("/")[2]
        assert f"{name}={original_bytes[1]}" in {view.original for view in views}
    assert kernel.settings() == before


def test_the_configuration_may_choose_the_twin(journal_path: str) -> None:
    kernel = usual_kernel()
    before = kernel.settings()
    wanted = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.dirty_bytes": 1 << 28})
    with open_journal(journal_path, BOOT_ID) as journal:
        assert apply(kernel, journal, wanted)["vm.dirty_ratio"].now == f"dirty_bytes={1 << 28}"
        assert kernel.settings()[VM + "dirty_ratio"] == "0\n"
        tuning.rollback(kernel, journal)
    assert kernel.settings() == before


def test_a_ratio_of_zero_comes_back_although_the_kernel_ignores_zero_over_zero(journal_path: str) -> None:
    kernel = usual_kernel()
    kernel.foreign_write(VM + "dirty_ratio", "0")
    before = kernel.settings()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal, Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.dirty_bytes": 1 << 28}))
        tuning.rollback(kernel, journal)
    assert kernel.settings() == before


def test_switching_twins_by_somebody_else_is_drift(journal_path: str) -> None:
    kernel = usual_kernel()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        kernel.foreign_write(VM + "dirty_bytes", "8388608")
        assert states(tuning.rollback(kernel, journal))["vm.dirty_ratio"] == "drifted"
    assert kernel.foreign_read(VM + "dirty_bytes") == "8388608\n"


def test_another_configuration_keeps_the_first_originals_and_gives_back_what_it_drops(journal_path: str) -> None:
    kernel = usual_kernel()
    before = kernel.settings()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        changed = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.dirty_ratio": 7})
        assert apply(kernel, journal, changed)["vm.dirty_ratio"].original == "20"
        assert kernel.foreign_read(VM + "dirty_ratio") == "7\n"
        assert states(apply(kernel, journal, Tuning()))["vm.dirty_ratio"] == "restored"
        assert journal.held == {}
    assert kernel.settings() == before
    assert not os.path.exists(journal_path)


def test_a_second_process_adopts_what_the_first_left(journal_path: str) -> None:
    kernel = usual_kernel()
    before = kernel.settings()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
    count = len(kernel.writes())
    with open_journal(journal_path, BOOT_ID) as journal:
        views = apply(kernel, journal)
        assert set(states(views).values()) == {"applied"}
        assert views["vm.dirty_ratio"].original == "20"
        assert len(kernel.writes()) == count
        tuning.rollback(kernel, journal)
    assert kernel.settings() == before


def test_disk_full_means_no_write_and_one_clear_error(journal_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = usual_kernel()
    before = kernel.settings()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_journal(journal_path, BOOT_ID) as journal:
        monkeypatch.setattr(durable_file.os, "pwrite", full)
        views = tuple(apply(kernel, journal).values())
    assert kernel.writes() == []
    assert kernel.settings() == before
    assert {view.state for view in views} == {"failed"}
    assert [view.detail for view in views if "No space left on device" in view.detail] == [views[0].detail]
    assert journal_path in views[0].detail


def test_rollback_works_with_a_full_disk(journal_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = usual_kernel()
    before = kernel.settings()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        monkeypatch.setattr(durable_file.os, "pwrite", full)
        assert set(states(tuning.rollback(kernel, journal)).values()) == {"restored"}
    assert kernel.settings() == before
    assert not os.path.exists(journal_path)


def test_a_mark_that_cannot_be_written_takes_its_write_back(journal_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = usual_kernel()
    before = kernel.settings()
    real, calls = os.pwrite, []

    def full_at_the_mark(descriptor: int, data: bytes, offset: int) -> int:
        calls.append(data)
        if b'"applied"' in data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, offset)

    with open_journal(journal_path, BOOT_ID) as journal:
        monkeypatch.setattr(durable_file.os, "pwrite", full_at_the_mark)
        views = apply(kernel, journal)
        assert "failed" in states(views).values()
        assert kernel.settings() == before
        assert len(calls) == 2, "the first failure stops all further writes"
        monkeypatch.undo()
        tuning.rollback(kernel, journal)
    assert kernel.settings() == before


def test_what_cannot_be_restored_stays_in_the_journal_for_another_try(journal_path: str) -> None:
    kernel = usual_kernel()
    before = kernel.settings()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        kernel.fail("write", VM + "dirty_ratio", errno.EIO)
        assert states(tuning.rollback(kernel, journal))["vm.dirty_ratio"] == "failed"
        assert os.path.exists(journal_path)
    with open_journal(journal_path, BOOT_ID) as journal:
        assert list(journal.held) == ["vm.dirty_ratio"]
        assert states(tuning.rollback(kernel, journal)) == {"vm.dirty_ratio": "restored"}
    assert kernel.settings() == before
    assert not os.path.exists(journal_path)


def test_a_setting_that_is_gone_is_forgotten(journal_path: str) -> None:
    kernel = usual_kernel()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        del kernel.files[THP]
        assert states(tuning.rollback(kernel, journal))["transparent_hugepage"] == "skipped"
    assert not os.path.exists(journal_path)


def test_an_earlier_boot_is_forgotten_and_said_so(journal_path: str) -> None:
    kernel = usual_kernel()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
    rebooted = usual_kernel()
    with open_journal(journal_path, "another-boot") as journal:
        assert journal.held == {}
        assert "earlier boot" in journal.notes[0]
        assert not os.path.exists(journal_path)
        assert tuning.rollback(rebooted, journal) == ()
    assert rebooted.writes() == []


def test_a_damaged_journal_stops_apply_and_is_kept_after_rollback(journal_path: str) -> None:
    kernel = usual_kernel()
    before = kernel.settings()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
    with open(journal_path, "ab") as file:
        file.write(b"rubbish\n")
    with open_journal(journal_path, BOOT_ID) as journal:
        count = len(kernel.writes())
        views = apply(kernel, journal)
        assert set(states(views).values()) == {"failed"}
        assert all("line 11" in view.detail for view in views.values())
        assert len(kernel.writes()) == count
        assert set(states(tuning.rollback(kernel, journal)).values()) == {"restored"}
    assert kernel.settings() == before
    assert not os.path.exists(journal_path)
    assert os.path.exists(journal_path + ".damaged")


def test_verify_says_what_the_plan_no_longer_wants(journal_path: str) -> None:
    kernel = usual_kernel()
    with open_journal(journal_path, BOOT_ID) as journal:
        assert set(states(tuning.verify(kernel, journal.held, steps_for(kernel))).values()) == {"planned"}
        apply(kernel, journal)
        kernel.foreign_write(THP, "always")
        views = {view.name: view for view in tuning.verify(kernel, journal.held, ())}
    assert views["vm.dirty_ratio"].detail.startswith("no longer wanted")
    assert views["transparent_hugepage"].state == "drifted"


def test_a_twin_shows_its_name() -> None:
    assert tuning.show_cell(Cell(VM + "dirty_bytes", "4096")) == "dirty_bytes=4096"
    assert tuning.show_cell(Cell(VM + "dirty_ratio", "4")) == "4"
    assert tuning.show_cell(None) is None


@pytest.mark.kernel
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """On a tmpfs of 64 KiB: full at apply nothing is written, full at rollback all is given back."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "moetuned-test", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root and mount(8)")
    try:
        kernel = usual_kernel()
        before = kernel.settings()
        filler, path = disk / "filler", str(disk / "undo.jsonl")
        with open_journal(path, BOOT_ID) as journal:
            fill(filler)
            views = tuple(apply(kernel, journal).values())
            assert "No space left on device" in views[0].detail
            assert (kernel.settings(), kernel.writes()) == (before, [])
            filler.unlink()
            assert set(states(apply(kernel, journal)).values()) == {"applied"}
            fill(filler)
            assert set(states(tuning.rollback(kernel, journal)).values()) == {"restored"}
        assert kernel.settings() == before
        assert os.listdir(disk) == ["filler"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(file: Path) -> None:
    with open(file, "wb", buffering=0) as out, contextlib.suppress(OSError):
        while True:
            out.write(bytes(4096))
