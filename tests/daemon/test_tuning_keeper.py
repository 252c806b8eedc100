"""Kernel settings over a daemon's life: applied, kept through a crash, checked for drift, given back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest
from daemon_fakes import FakeClock
from fakes.fake_kernel import BOOT_ID, FakeKernel, Limit, Text, add_cgroups, usual_kernel

from moetuned.daemon.tuning_keeper import RESTING, TuningKeeper
from moetuned.decide.hard_protection import RETRY_SECONDS
from moetuned.host import service_manager
from moetuned.host.fs import RealFS
from moetuned.host.systemd_booted import BOOTED
from moetuned.schema.config import Backend, Config, Profile, Tuning
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Cell, Codec, Place
from moetuned.state import borrowed_setting
from moetuned.state.tuning_views import line_of
from moetuned.state.undo_journal import JournalBusyError, open_journal

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


def kept(kernel: FakeKernel) -> list[str]:
    """memory.min of the slice, of glm and of qwen."""
    names = ("moetuned.slice", "moetuned.slice/glm.service", "moetuned.slice/qwen.service")
    return [kernel.foreign_read(f"/sys/fs/cgroup/{name}/memory.min").strip() for name in names]


def keeping(**sizes: str | None) -> Config:
    return msgspec.structs.replace(OFFLOAD, backends=[Backend(name, memory_min=size) for name, size in sizes.items()])


def test_memory_is_kept_moved_refused_and_given_back(kernel: FakeKernel, journal: str) -> None:
    add_cgroups(kernel, "moetuned.slice/glm.service", "moetuned.slice/qwen.service")
    kernel.files["/sys/fs/cgroup/moetuned.slice/memory.min"] = Limit(str(48 << 20))
    before = kernel.settings()
    running = {name: f"/sys/fs/cgroup/moetuned.slice/{name}.service" for name in ("glm", "qwen")}
    gib = 1 << 30
    steps = (
        (keeping(glm="30GiB", qwen=None), [30 * gib, 30 * gib, 0]),
        # Not 60 GiB in all: what the first one has goes in the same step.
        (keeping(glm=None, qwen="30GiB"), [30 * gib, 0, 30 * gib]),
        (keeping(glm="8GiB", qwen="2GiB"), [10 * gib, 8 * gib, 2 * gib]),
        # Together more than the 48 GiB of 64 that may be: what was kept before is given back, and nothing is written.
        (keeping(glm="40GiB", qwen="9GiB"), [48 << 20, 0, 0]),
        (keeping(glm="40GiB", qwen="8GiB"), [48 * gib, 40 * gib, 8 * gib]),
    )
    keeper = TuningKeeper(kernel, journal)
    for config, there in steps:
        keeper.follow_cgroups(config, running)
        keeper.apply(config)
        assert kept(kernel) == [str(size) for size in there]
        refused = [view for view in keeper.views if view.name.startswith("memory_min ") and view.state == "skipped"]
        assert bool(refused) == (there[1:] == [0, 0])
        assert all("no more than 48.0 GiB may be" in view.detail for view in refused)
    # Killed: the next one finds in the journal what it was.
    keeper.close()
    after = TuningKeeper(kernel, journal)
    after.apply(OFFLOAD)
    assert kept(kernel) == [str(48 << 20), "0", "0"]
    after.rollback()
    assert kernel.settings() == before


def test_what_somebody_else_set_meanwhile_counts_as_theirs(kernel: FakeKernel, journal: str) -> None:
    add_cgroups(kernel, "moetuned.slice/glm.service", "moetuned.slice/qwen.service")
    running = {"glm": "/sys/fs/cgroup/moetuned.slice/glm.service"}
    keeper = TuningKeeper(kernel, journal)
    keeper.follow_cgroups(keeping(glm="1GiB"), running)
    keeper.apply(keeping(glm="1GiB"))
    kernel.foreign_write("/sys/fs/cgroup/moetuned.slice/memory.min", str(47 << 30))
    keeper.apply(keeping(glm="1GiB"))
    assert kept(kernel) == [str(47 << 30), str(1 << 30), "0"]
    kernel.foreign_write("/sys/fs/cgroup/moetuned.slice/memory.min", str(49 << 30))
    keeper.apply(keeping(glm="1GiB"))
    assert kept(kernel) == [str(49 << 30), "0", "0"], "theirs stays, and nothing of ours is beside it"


@pytest.mark.parametrize("how", ["a limit above", "others", "huge pages"])
def test_what_leaves_too_little_room_later_ends_it_and_what_leaves_more_again_does_not(
    kernel: FakeKernel, journal: str, how: str
) -> None:
    add_cgroups(kernel, "moetuned.slice/glm.service", "other.slice/backup.service")
    path, less, more = {
        "a limit above": ("/sys/fs/cgroup/moetuned.slice/memory.max", str(31 << 30), "max"),
        "others": ("/sys/fs/cgroup/other.slice/memory.min", str(20 << 30), "0"),
        "huge pages": ("/proc/meminfo", "", ""),
    }[how]
    meminfo = kernel.foreign_read("/proc/meminfo")
    keeper = TuningKeeper(kernel, journal)
    keeper.follow_cgroups(keeping(glm="30GiB"), {"glm": "/sys/fs/cgroup/moetuned.slice/glm.service"})
    keeper.apply(keeping(glm="30GiB"))

    def unit() -> str:
        return kernel.foreign_read("/sys/fs/cgroup/moetuned.slice/glm.service/memory.min").strip()

    for _ in range(2):
        keeper.check()
        assert unit() == str(30 << 30)
        writes = len(kernel.writes())
        keeper.check()
        assert len(kernel.writes()) == writes, "as long as nothing changes nothing is written"
        _set(kernel, path, less, meminfo + f"Hugetlb: {40 << 20} kB\n")
        assert keeper.check() == ()
        assert unit() == kernel.foreign_read("/sys/fs/cgroup/moetuned.slice/memory.min").strip() == "0"
        assert any(view.name.startswith("memory_min ") and "may be" in view.detail for view in keeper.views)
        _set(kernel, path, more, meminfo)
    keeper.check()
    keeper.rollback()
    assert unit() == "0"


def _set(kernel: FakeKernel, path: str, value: str, meminfo: str) -> None:
    if path == "/proc/meminfo":
        kernel.files[path] = Text(meminfo)
    else:
        kernel.foreign_write(path, value)


def test_what_is_given_up_as_memory_is_near_its_limit_comes_back_after_its_time(
    kernel: FakeKernel, journal: str
) -> None:
    add_cgroups(kernel, "moetuned.slice/glm.service", "moetuned.slice/qwen.service")
    clock = FakeClock()
    keeper = TuningKeeper(kernel, journal, clock)
    assert not keeper.give_up_kept("before anything is applied")
    keeper.follow_cgroups(keeping(glm="30GiB"), {"glm": "/sys/fs/cgroup/moetuned.slice/glm.service"})
    keeper.apply(keeping(glm="30GiB"))
    assert keeper.give_up_kept("memory was near its limit")
    assert kept(kernel) == ["0", "0", "0"]
    assert {view.detail for view in keeper.views if view.state == "skipped"} >= {"memory was near its limit"}
    assert not keeper.give_up_kept("there is nothing any more")
    keeper.check()
    keeper.apply(keeping(glm="30GiB"))
    assert kept(kernel) == ["0", "0", "0"], "whoever applies meanwhile"
    clock.now += RETRY_SECONDS
    keeper.check()
    assert kept(kernel) == [str(30 << 30), str(30 << 30), "0"]
    keeper.rest()
    assert not keeper.give_up_kept("somebody had it given back")
    keeper.close()


def test_what_could_not_be_given_back_is_tried_again_but_not_at_each_look(kernel: FakeKernel, journal: str) -> None:
    add_cgroups(kernel, "moetuned.slice/glm.service")
    clock = FakeClock()
    keeper = TuningKeeper(kernel, journal, clock)
    keeper.follow_cgroups(keeping(glm="30GiB"), {"glm": "/sys/fs/cgroup/moetuned.slice/glm.service"})
    keeper.apply(keeping(glm="30GiB"))
    path = "/sys/fs/cgroup/moetuned.slice/glm.service/memory.min"
    kernel.fail("write", path, errno.EBUSY)
    assert keeper.give_up_kept("memory was near its limit")
    assert kernel.foreign_read(path).strip() == str(30 << 30)
    assert not keeper.give_up_kept("a second later")
    clock.now += 10.0
    assert keeper.give_up_kept("ten seconds later")
    assert kernel.foreign_read(path).strip() == "0"
    keeper.close()


def test_only_what_is_kept_is_given_up_at_once(
    kernel: FakeKernel, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow when memory is short: the headers of models are not read for it."""
    add_cgroups(kernel, "moetuned.slice/glm.service")
    keeper = TuningKeeper(kernel, journal, FakeClock())
    keeper.follow_cgroups(keeping(glm="30GiB"), {"glm": "/sys/fs/cgroup/moetuned.slice/glm.service"})
    keeper.apply(keeping(glm="30GiB"))
    applied = [view for view in keeper.views if view.state == "applied"]
    with monkeypatch.context() as patch:
        patch.setattr("moetuned.daemon.tuning_keeper.find_targets", None)
        assert keeper.give_up_kept("memory was near its limit")
    assert kernel.foreign_read("/sys/fs/cgroup/moetuned.slice/glm.service/memory.min").strip() == "0"
    after = {view.name: view for view in keeper.views}
    assert {after[view.name].state for view in applied if not view.name.startswith("memory_min")} == {"applied"}
    skipped = {view.name for view in after.values() if view.detail == "memory was near its limit"}
    assert skipped == {view.name for view in applied if view.name.startswith("memory_min")}
    keeper.check()
    views = {view.name: view for view in keeper.views}
    assert views["memory_min moetuned.slice/glm.service"].detail == "memory was near its limit"
    assert not keeper.must_look_again
    keeper.close()


def test_after_the_end_nothing_is_made_anew_because_memory_is_short(kernel: FakeKernel, journal: str) -> None:
    add_cgroups(kernel, "moetuned.slice/glm.service")
    keeper = TuningKeeper(kernel, journal, FakeClock())
    keeper.follow_cgroups(keeping(glm="30GiB"), {"glm": "/sys/fs/cgroup/moetuned.slice/glm.service"})
    before = kernel.settings()
    keeper.apply(keeping(glm="30GiB"))
    path = "/sys/fs/cgroup/moetuned.slice/glm.service/memory.min"
    kernel.fail("write", path, errno.EBUSY)
    keeper.rollback()
    assert not keeper.give_up_kept("memory was near its limit")
    assert kernel.settings() == {**before, path: f"{30 << 30}\n"}
    keeper.rollback()
    assert kernel.settings() == before
    keeper.close()


def test_what_was_given_back_by_hand_stays_so_whatever_leaves_room(kernel: FakeKernel, journal: str) -> None:
    add_cgroups(kernel, "moetuned.slice/glm.service")
    keeper = TuningKeeper(kernel, journal)
    keeper.follow_cgroups(keeping(glm="30GiB"), {"glm": "/sys/fs/cgroup/moetuned.slice/glm.service"})
    keeper.apply(keeping(glm="30GiB"))
    keeper.rest()
    kernel.foreign_write("/sys/fs/cgroup/moetuned.slice/memory.max", str(60 << 30))
    keeper.check()
    assert kernel.foreign_read("/sys/fs/cgroup/moetuned.slice/glm.service/memory.min").strip() == "0"


@pytest.mark.parametrize("theirs", [False, True])
def test_a_unit_that_is_stopped_does_not_start_with_ours_once_nobody_wants_it(
    kernel: FakeKernel, journal: str, monkeypatch: pytest.MonkeyPatch, theirs: bool
) -> None:
    add_cgroups(kernel, "moetuned.slice/glm.service")
    kernel.files["/proc/sys/kernel/random/boot_id"] = Text(RealFS().read_text("/proc/sys/kernel/random/boot_id"))
    kernel.files[f"{BOOTED}/anything"] = Text("")
    kept_by_systemd: dict[str, str] = {}

    def set_property(unit: str, _name: str, value: str) -> None:
        kept_by_systemd[unit] = value
        above = "" if unit == "moetuned.slice" else "moetuned.slice/"
        path = f"/sys/fs/cgroup/{above}{unit}/memory.min"
        if kernel.exists(path):
            kernel.foreign_write(path, value)

    monkeypatch.setattr(service_manager, "set_property", set_property)
    monkeypatch.setattr(service_manager, "property_of", lambda unit, _name: kept_by_systemd[unit])
    keeper = TuningKeeper(kernel, journal)
    keeper.follow_cgroups(keeping(glm="1GiB"), {"glm": "/sys/fs/cgroup/moetuned.slice/glm.service"})
    keeper.apply(keeping(glm="1GiB"))
    assert kept_by_systemd == {"glm.service": str(1 << 30), "moetuned.slice": str(1 << 30)}
    for path in [each for each in kernel.files if each.startswith("/sys/fs/cgroup/moetuned.slice/glm.service/")]:
        del kernel.files[path]
    if theirs:
        kept_by_systemd["glm.service"] = "4096"
    keeper.rollback()
    assert kept_by_systemd == {"glm.service": "4096" if theirs else "0", "moetuned.slice": "0"}
    assert not os.path.exists(journal)
