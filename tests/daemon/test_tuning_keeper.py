"""Kernel settings over a daemon's life: applied, kept through a crash, checked for drift, given back."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from fakes.fake_kernel import BOOT_ID, FakeKernel, Text, add_cgroups, usual_kernel

from moetuned.daemon.tuning_keeper import RESTING, TuningKeeper
from moetuned.schema.config import Backend, Config, Profile, Tuning
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Cell, Codec, Place
from moetuned.state import borrowed_setting
from moetuned.state.tuning_views import line_of
from moetuned.state.undo_journal import JournalBusyError, open_journal

OFFLOAD = Config(tuning=Tuning(profile=Profile.MOE_OFFLOAD))
PRESSURE = "/proc/sys/vm/vfs_cache_pressure"


@pytest.fixture(name="kernel")
def kernel_as_usual() -> FakeKernel:
    return usual_kernel()


@pytest.fixture(name="journal")
def journal_path(tmp_path: Path) -> str:
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
    assert {view.state for view in keeper.views} - {"skipped"} == {"applied"}
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
    assert keeper.check() == (), "one look may be in the moment of a measurement"
    assert keeper.must_look_again
    (view,) = keeper.check()
    assert (view.name, view.state) == ("vm.vfs_cache_pressure", "yielded")
    assert "somebody changed it to 70 after moetuned had set it" in view.detail
    assert keeper.check() == ()
    assert not keeper.must_look_again
    keeper.rollback()
    assert kernel.foreign_read(PRESSURE) == "70\n"


def test_what_was_changed_for_a_moment_is_no_drift(kernel: FakeKernel, journal: str) -> None:
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    for _ in range(3):
        kernel.foreign_write(PRESSURE, "70")
        assert keeper.check() == ()
        kernel.foreign_write(PRESSURE, "50")
        assert keeper.check() == ()
    keeper.rollback()
    assert kernel.foreign_read(PRESSURE) == "100\n"


def test_whoever_else_sets_it_is_named(kernel: FakeKernel, journal: str) -> None:
    kernel.files["/etc/sysctl.d/99-mine.conf"] = Text("vm.vfs_cache_pressure = 70\nvm.dirty_ratio = 10\n")
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    kernel.foreign_write(PRESSURE, "70")
    keeper.check()
    (news,) = keeper.check()
    assert news.detail.endswith("; /etc/sysctl.d/99-mine.conf line 1 sets it to 70 at boot")
    keeper.rollback()


def test_a_restarted_daemon_does_not_fight_whoever_changed_it(kernel: FakeKernel, journal: str) -> None:
    first = TuningKeeper(kernel, journal)
    first.apply(OFFLOAD)
    kernel.foreign_write(PRESSURE, "70")
    first.check()
    first.check()
    first._journal.close()
    for stop_well in (True, False, True):
        keeper = TuningKeeper(kernel, journal)
        keeper.apply(OFFLOAD)
        assert view_of(keeper, "vm.vfs_cache_pressure").state == "yielded"
        assert (keeper.check(), keeper.check()) == ((), ())
        if stop_well:
            keeper.rollback()
        keeper.close()
    assert kernel.foreign_read(PRESSURE) == "70\n"
    keeper.apply(OFFLOAD, by_hand=True)
    assert view_of(keeper, "vm.vfs_cache_pressure").state == "applied"
    keeper.rollback()
    assert kernel.foreign_read(PRESSURE) == "70\n"
    assert not os.path.exists(journal)


def test_drift_that_a_start_finds_is_told_after_the_next_look(kernel: FakeKernel, journal: str) -> None:
    first = TuningKeeper(kernel, journal)
    first.apply(OFFLOAD)
    first._journal.close()
    kernel.foreign_write(PRESSURE, "70")
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    assert view_of(keeper, "vm.vfs_cache_pressure").state == "drifted"
    assert [view.state for view in keeper.check()] == ["yielded"]
    keeper.rollback()


def test_drift_of_what_was_as_wanted_anyway_is_told_once(kernel: FakeKernel, journal: str) -> None:
    kernel.foreign_write(PRESSURE, "50")
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    kernel.foreign_write(PRESSURE, "70")
    assert [len(keeper.check()) for _ in range(5)] == [0, 1, 0, 0, 0]
    kernel.foreign_write(PRESSURE, "40")
    assert keeper.check() == ()
    kernel.foreign_write(PRESSURE, "80")
    assert [len(keeper.check()) for _ in range(3)] == [0, 1, 0]
    keeper.rollback()
    assert kernel.foreign_read(PRESSURE) == "80\n"


def test_given_back_by_hand_it_rests_until_it_is_told(kernel: FakeKernel, journal: str) -> None:
    before = kernel.settings()
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    ours = kernel.settings()
    keeper.rest()
    assert kernel.settings() == before
    assert {view.state for view in keeper.views} == {"restored"}
    assert keeper.notes == (RESTING,)
    kernel.foreign_write(PRESSURE, "70")
    kernel.foreign_write(PRESSURE, "100")
    assert (keeper.check(), keeper.check(), keeper.must_look_again) == ((), (), False)
    with pytest.raises(JournalBusyError):
        open_journal(journal, BOOT_ID)
    keeper.apply(OFFLOAD, by_hand=True)
    assert (kernel.settings(), keeper.notes) == (ours, ())
    keeper.rest()
    keeper.apply(OFFLOAD)
    assert kernel.settings() == ours
    keeper.rest()
    keeper.rollback()
    keeper.close()
    assert kernel.settings() == before
    open_journal(journal, BOOT_ID).close()


def test_resting_before_anything_was_set(kernel: FakeKernel, journal: str) -> None:
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(Config())
    keeper.rest()
    assert (keeper.views, keeper.notes, kernel.writes()) == ((), (RESTING,), [])
    assert not os.path.exists(journal)


def test_what_a_killed_measurement_left_is_given_back_first(kernel: FakeKernel, journal: str) -> None:
    place, original, lent = Place(PRESSURE, Codec.INTEGER), Cell(PRESSURE, "100"), Cell(PRESSURE, "7")
    for config in (Config(), OFFLOAD):
        with open_journal(borrowed_setting.journal_path(journal), BOOT_ID) as borrowed:
            borrowed.intend("read_ahead_kb vda", place, original, lent)
        kernel.foreign_write(PRESSURE, "7")
        keeper = TuningKeeper(kernel, journal)
        keeper.apply(config)
        assert kernel.foreign_read(PRESSURE) == ("50\n" if config is OFFLOAD else "100\n")
        keeper.rollback()
        assert kernel.foreign_read(PRESSURE) == "100\n"
    path = Path(borrowed_setting.journal_path(journal))
    path.write_text("rubbish\n")
    keeper.apply(OFFLOAD)
    assert view_of(keeper, "vm.vfs_cache_pressure").state == "applied"
    keeper.rollback()
    assert path.read_text() == "rubbish\n"


def view_of(keeper: TuningKeeper, name: str) -> TunableView:
    return next(view for view in keeper.views if view.name == name)


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
    assert set(states.values()) - {"skipped"} == {"applied"}
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


def borrowed(kernel: FakeKernel, journal: str, value: str) -> None:
    """What a measurement that was killed leaves beside a daemon that holds PRESSURE at 50."""
    with borrowed_setting.open_borrowed(journal, BOOT_ID) as own:
        own.intend("read_ahead_kb x", Place(PRESSURE, Codec.INTEGER), Cell(PRESSURE, "50"), Cell(PRESSURE, value))
    kernel.foreign_write(PRESSURE, value)


def test_what_a_measurement_killed_meanwhile_left_is_given_back_and_no_drift(kernel: FakeKernel, journal: str) -> None:
    before = kernel.settings()
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    borrowed(kernel, journal, "7")
    assert (keeper.check(), keeper.must_look_again) == ((), False)
    assert keeper.check() == ()
    assert kernel.foreign_read(PRESSURE) == "50\n"
    borrowed(kernel, journal, "7")
    keeper.rollback()
    assert kernel.settings() == before, "the original is known still"


def test_what_a_running_measurement_has_borrowed_is_no_drift(kernel: FakeKernel, journal: str) -> None:
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    borrowed(kernel, journal, "7")
    with open_journal(borrowed_setting.journal_path(journal), BOOT_ID):
        for _ in range(3):
            assert (keeper.check(), keeper.must_look_again) == ((), False)
        assert {view.state for view in keeper.views if view.name == "vm.vfs_cache_pressure"} == {"applied"}
    kernel.foreign_write(PRESSURE, "77")  # and this is somebody's
    assert keeper.check() == ()
    (drifted,) = keeper.check()
    assert "somebody changed it to 77" in drifted.detail


def test_a_damaged_journal_of_a_measurement_is_said_once(
    kernel: FakeKernel, journal: str, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    with borrowed_setting.open_borrowed(journal, BOOT_ID):
        Path(borrowed_setting.journal_path(journal)).write_text("rubbish\n")
    for _ in range(3):
        assert keeper.check() == ()
    assert caplog.text.count("measurement that was killed is damaged") == 1


def test_what_was_yielded_is_said_when_all_is_given_back_by_hand(kernel: FakeKernel, journal: str) -> None:
    keeper = TuningKeeper(kernel, journal)
    keeper.apply(OFFLOAD)
    kernel.foreign_write(PRESSURE, "77")
    keeper.check()
    keeper.check()
    keeper.rest()
    (view,) = [view for view in keeper.views if view.state == "yielded"]
    assert view.detail.startswith("stays at 77, somebody's")


def test_settings_of_a_cgroup_follow_it(kernel: FakeKernel, journal: str) -> None:
    add_cgroups(kernel, "llama", "other")
    low = "/sys/fs/cgroup/llama/memory.low"
    config = msgspec.structs.replace(OFFLOAD, backends=[Backend("glm", memory_low="1GiB"), Backend("plain")])
    keeper = TuningKeeper(kernel, journal)
    assert not keeper.follow_cgroups(config, {"plain": "/sys/fs/cgroup/other"}), "it asks for nothing"
    keeper.apply(config)
    assert kernel.foreign_read(low).strip() == "0"
    running = {"glm": "/sys/fs/cgroup/llama", "plain": "/sys/fs/cgroup/other", "lost": None}
    assert keeper.follow_cgroups(config, running)
    keeper.apply(config)
    assert kernel.foreign_read(low).strip() == str(1 << 30)
    assert not keeper.follow_cgroups(config, running)
    assert keeper.follow_cgroups(config, {"glm": None})
    keeper.rest()
    assert not keeper.follow_cgroups(config, running), "a person has given all back"


@pytest.mark.parametrize("passed", ["moetuned.slice/moetuned.service", "moetuned.slice", "init.scope"])
def test_the_cgroup_that_a_backend_is_started_in_is_not_set_for_it(
    kernel: FakeKernel, journal: str, passed: str
) -> None:
    """systemd-run(1) is a child of the daemon until systemd has made the scope and moved it there."""
    scope = "moetuned.slice/moetuned-backend-glm.scope"
    add_cgroups(kernel, "moetuned.slice/moetuned.service", scope, "init.scope")
    for directory in ("moetuned.slice", "moetuned.slice/moetuned.service", scope, "init.scope"):
        kernel.files[f"/sys/fs/cgroup/{directory}/memory.current"] = Text("0\n")
    kernel.files[f"/proc/{os.getpid()}/cgroup"] = Text("0::/moetuned.slice/moetuned.service\n")

    def low(cgroup: str) -> str:
        return kernel.foreign_read(f"/sys/fs/cgroup/{cgroup}/memory.low").strip()

    config = msgspec.structs.replace(OFFLOAD, backends=[Backend("glm", memory_low="1GiB", io_weight=300)])
    keeper = TuningKeeper(kernel, journal)
    assert keeper.follow_cgroups(config, {"glm": f"/sys/fs/cgroup/{passed}"})
    assert not keeper.follow_cgroups(config, {"glm": f"/sys/fs/cgroup/{passed}"})
    keeper.apply(config)
    assert {low(each) for each in ("moetuned.slice", "moetuned.slice/moetuned.service", scope, "init.scope")} == {"0"}
    said = {view.name: view.detail for view in keeper.views}
    assert "moetuned's own cgroup" in said["memory_low glm"]
    assert "moetuned's own cgroup" in said["io_weight glm"]
    assert keeper.follow_cgroups(config, {"glm": f"/sys/fs/cgroup/{scope}"})
    keeper.apply(config)
    assert (low(scope), low("moetuned.slice/moetuned.service")) == (str(1 << 30), "0")
