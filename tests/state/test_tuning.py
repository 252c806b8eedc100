"""Apply, verify and rollback against the fake kernel: tables, then every interleaving, then every crash."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from fakes.fake_kernel import BOOT_ID, FakeKernel, Number, add_cgroups, usual_kernel
from tuning_scenes import MOE, THP, VM, steps_for

from moetuned.host import durable_file
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Bound, Cell, Codec, Place, PlannedStep, StepKind, TunableSpec, Wanted
from moetuned.state import tuning
from moetuned.state.tuning_views import TAKEN_AT_OPEN
from moetuned.state.undo_journal import UndoJournal, open_journal, read_journal

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


def apply(
    kernel: FakeKernel, journal: UndoJournal, wanted: Tuning = MOE, *, by_hand: bool = False
) -> dict[str, TunableView]:
    steps = steps_for(kernel, wanted, journal)
    return {view.name: view for view in tuning.apply(kernel, journal, steps, by_hand=by_hand)}


def as_wanted(kernel: FakeKernel) -> bool:
    return WANTED.items() <= kernel.settings().items()


def states(views: object) -> dict[str, str]:
    values = views.values() if isinstance(views, dict) else views
    return {view.name: view.state for view in values}  # type: ignore[attr-defined]


def test_apply_writes_what_the_profile_wants_and_rollback_gives_all_back(journal_path: str) -> None:
    kernel = usual_kernel()
    before = kernel.settings()
    with open_journal(journal_path, BOOT_ID) as journal:
        assert set(states(apply(kernel, journal)).values()) == {"applied"}
        assert as_wanted(kernel)
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
        assert (view.state, view.now, view.wanted) == ("adjusted", "64", "at-most 50")
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
    left = read_journal(journal_path, BOOT_ID)
    assert (left.held, list(left.yields)) == ({}, ["vm.dirty_ratio"])


@pytest.mark.parametrize("original_bytes", [(VM + "dirty_bytes", "1048576"), (VM + "dirty_background_bytes", "524288")])
def test_the_twin_that_was_in_force_is_restored(original_bytes: tuple[str, str], journal_path: str) -> None:
    kernel = usual_kernel()
    kernel.foreign_write(*original_bytes)
    before = kernel.settings()
    name = original_bytes[0].rpartition("/")[2]
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        assert kernel.foreign_read(original_bytes[0]) == original_bytes[1] + "\n", (
            "a profile leaves a limit in bytes alone"
        )
        ratio = f"vm.{name.replace('_bytes', '_ratio')}"
        apply(kernel, journal, Tuning(profile=Profile.MOE_OFFLOAD, sysctl={ratio: 4}))
        assert kernel.foreign_read(original_bytes[0]) == "0\n"
        views = tuning.rollback(kernel, journal)
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


def pressure(value: int | str) -> Tuning:
    return Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.vfs_cache_pressure": value})


PRESSURE = VM + "vfs_cache_pressure"


@pytest.mark.parametrize(
    ("before", "wish", "after", "state"),
    [
        ("100", "at-most 50", "50", "applied"),
        ("50", "at-most 50", "50", "already"),
        ("20", "at-most 50", "20", "already"),
        ("20", "at-least 50", "50", "applied"),
        ("100", "at-least 50", "100", "already"),
        ("20", "50", "50", "applied"),
    ],
)
def test_a_value_within_its_bound_is_in_order(
    before: str, wish: str, after: str, state: str, journal_path: str
) -> None:
    kernel = usual_kernel()
    kernel.foreign_write(PRESSURE, before)
    with open_journal(journal_path, BOOT_ID) as journal:
        assert apply(kernel, journal, pressure(wish))["vm.vfs_cache_pressure"].state == state
        assert kernel.foreign_read(PRESSURE).strip() == after
        assert ("vm.vfs_cache_pressure" in journal.held) == (state == "applied")
        seen = tuning.verify(kernel, journal.held, steps_for(kernel, pressure(wish), journal))
        assert states(seen)["vm.vfs_cache_pressure"] == state
        tuning.rollback(kernel, journal)
    assert kernel.foreign_read(PRESSURE).strip() == before


@pytest.mark.parametrize(
    ("first", "then", "after", "held"),
    [
        ("at-most 10", "at-most 50", "50", True),  # ours is within, but the original (100) is not
        ("at-most 50", "at-most 10", "10", True),
        ("at-most 10", "at-most 200", "100", False),  # the original is: it comes back
        ("at-least 150", "at-least 120", "120", True),
        ("at-least 150", "at-least 80", "100", False),
        ("at-most 10", "at-least 5", "100", False),
        ("10", "100", "100", False),
        ("at-most 10", "at-least 130", "130", True),
    ],
)
def test_of_a_setting_that_is_ours_the_original_decides(
    first: str, then: str, after: str, held: bool, journal_path: str
) -> None:
    kernel = usual_kernel()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal, pressure(first))
        steps = steps_for(kernel, pressure(then), journal)
        assert states(tuning.verify(kernel, journal.held, steps))["vm.vfs_cache_pressure"] == "planned"
        view = apply(kernel, journal, pressure(then))["vm.vfs_cache_pressure"]
        assert kernel.foreign_read(PRESSURE).strip() == after
        assert (view.state, "vm.vfs_cache_pressure" in journal.held) == (("applied" if held else "already"), held)
        count = len(kernel.writes())
        assert apply(kernel, journal, pressure(then))["vm.vfs_cache_pressure"].state == view.state
        assert len(kernel.writes()) == count, "applying twice is applying once"
        tuning.rollback(kernel, journal)
    assert kernel.foreign_read(PRESSURE).strip() == "100"


def test_a_foreign_value_within_the_bound_is_no_drift_and_not_ours_to_give_back(journal_path: str) -> None:
    kernel = usual_kernel()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        kernel.foreign_write(PRESSURE, "40")
        for by_hand in (False, True):
            view = apply(kernel, journal, by_hand=by_hand)["vm.vfs_cache_pressure"]
            assert (view.state, view.now) == ("already", "40")
            assert (
                view.detail
                == "moetuned had set 50, somebody changed it to 40; profile moe-offload is content with that"
            )
        seen = tuning.verify(kernel, journal.held, steps_for(kernel, MOE, journal))
        assert states(seen)["vm.vfs_cache_pressure"] == "already"
        tuning.confirm_drift(kernel, journal, steps_for(kernel, MOE, journal), ["vm.vfs_cache_pressure"])
        assert journal.yields == {}
        kernel.foreign_write(PRESSURE, "60")
        assert apply(kernel, journal)["vm.vfs_cache_pressure"].state == "drifted"
        tuning.rollback(kernel, journal)
    assert kernel.foreign_read(PRESSURE) == "60\n"


def test_what_the_plan_leaves_alone_now_is_given_back(journal_path: str) -> None:
    kernel = usual_kernel()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        steps = steps_for(kernel, pressure("keep"), journal)
        seen = {view.name: view for view in tuning.verify(kernel, journal.held, steps)}
        assert seen["vm.vfs_cache_pressure"].detail.startswith("no longer wanted")
        tuning.apply(kernel, journal, steps)
        assert "vm.vfs_cache_pressure" not in journal.held
        assert kernel.foreign_read(PRESSURE) == "100\n"


def test_a_cgroup_that_was_made_anew_is_no_drift(journal_path: str) -> None:
    kernel = usual_kernel()
    add_cgroups(kernel, "system.slice/llama.service")
    path = "/sys/fs/cgroup/system.slice/llama.service/memory.low"
    spec = TunableSpec("memory_low llama", "backends.memory_low", Place(path, Codec.LIMIT), {}, asked="1073741824")
    wanted = Wanted(spec, Cell(path, "1073741824"), spec.config_key, Bound.AT_LEAST)
    steps = (PlannedStep(wanted, StepKind.WRITE, Cell(path, "0"), spec.config_key),)
    with open_journal(journal_path, BOOT_ID) as journal:
        for by_hand in (False, False, True):
            (view,) = tuning.apply(kernel, journal, steps, by_hand=by_hand)
            assert (view.state, view.original) == ("applied", "0")
            kernel.foreign_write(path, "0")  # as a new one has it
            (view,) = tuning.verify(kernel, journal.held, steps)
            assert (view.state, view.detail) == ("planned", "its cgroup was made anew; to be applied again")
        kernel.foreign_write(path, "max")
        assert states(tuning.apply(kernel, journal, steps)) == {"memory_low llama": "already"}
        kernel.foreign_write(path, "4096")
        assert states(tuning.apply(kernel, journal, steps)) == {"memory_low llama": "drifted"}
        del kernel.files[path]
        assert states(tuning.rollback(kernel, journal)) == {"memory_low llama": "skipped"}
    assert not os.path.exists(journal_path)


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


def test_a_setting_that_cannot_be_read_any_more_is_a_failure_only_where_it_is_ours(journal_path: str) -> None:
    kernel = usual_kernel()
    steps = steps_for(kernel)
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        kernel.fail("read", PRESSURE, errno.EIO)
        assert states(tuning.verify(kernel, journal.held, steps))["vm.vfs_cache_pressure"] == "failed"
        kernel.fail("read", PRESSURE, errno.EIO)
        assert states(tuning.verify(kernel, {}, steps))["vm.vfs_cache_pressure"] == "skipped"


def test_that_backends_must_be_restarted_is_said_until_the_value_changes(journal_path: str) -> None:
    kernel = usual_kernel()
    spec = TunableSpec("x", "tuning.x", Place(PRESSURE, Codec.INTEGER, taken_at_open=True), {})
    steps = (PlannedStep(Wanted(spec, Cell(PRESSURE, "50"), "tuning.x"), StepKind.WRITE, None, "tuning.x"),)
    with open_journal(journal_path, BOOT_ID) as journal:
        views = tuning.apply(kernel, journal, steps)
        assert TAKEN_AT_OPEN in views[0].detail
        again = tuning.verify(kernel, journal.held, steps, views)
        assert again == views
        assert TAKEN_AT_OPEN not in tuning.verify(kernel, journal.held, steps)[0].detail
        kernel.foreign_write(PRESSURE, "60")
        assert TAKEN_AT_OPEN not in tuning.verify(kernel, journal.held, steps, again)[0].detail


def test_an_original_that_stands_there_after_a_restart_is_nobodys_change(journal_path: str) -> None:
    """The process before has given all back, and the disk (read-only) took no record of it."""
    kernel = usual_kernel()
    before = kernel.settings()
    with open_journal(journal_path, BOOT_ID) as journal:
        apply(kernel, journal)
        kept = Path(journal_path).read_bytes()
        tuning.rollback(kernel, journal)
    Path(journal_path).write_bytes(kept)
    Path(journal_path).chmod(0o600)
    with open_journal(journal_path, BOOT_ID) as journal:
        assert set(states(apply(kernel, journal)).values()) == {"applied"}
        assert journal.yields == {}
        assert as_wanted(kernel)
        tuning.rollback(kernel, journal)
    assert kernel.settings() == before


@pytest.mark.parametrize("restarted", [False, True])
def test_an_original_that_somebody_sets_while_moetuned_runs_is_their_change(journal_path: str, restarted: bool) -> None:
    kernel = usual_kernel()
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(open_journal(journal_path, BOOT_ID))
        apply(kernel, journal)
        if restarted:  # killed, and what it set was seen by the next
            journal.close()
            journal = stack.enter_context(open_journal(journal_path, BOOT_ID))
            apply(kernel, journal)
        kernel.foreign_write(VM + "vfs_cache_pressure", "100")
        assert apply(kernel, journal)["vm.vfs_cache_pressure"].state == "drifted"
        tuning.confirm_drift(kernel, journal, steps_for(kernel, MOE, journal), {"vm.vfs_cache_pressure"})
        assert list(journal.yields) == ["vm.vfs_cache_pressure"]


def test_a_setting_that_is_skipped_is_shown_as_it_is_now(journal_path: str) -> None:
    kernel = usual_kernel()
    with open_journal(journal_path, BOOT_ID) as journal:
        step = msgspec.structs.replace(
            steps_for(kernel, MOE, journal)[-1], kind=StepKind.SKIPPED, reason="no swap is on"
        )
        path = step.wanted.spec.place.path
        kernel.foreign_write(path, "133")
        (view,) = tuning.verify(kernel, {}, [step])
    assert (path, view.state, view.now) == (VM + "vfs_cache_pressure", "skipped", "133")
