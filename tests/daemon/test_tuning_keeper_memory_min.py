"""Memory that is kept for backends (memory.min) over a daemon's life: moved, refused, given up, given back."""

from __future__ import annotations

import errno
import os

import msgspec
import pytest
from daemon_fakes import FakeClock
from fakes.fake_kernel import FakeKernel, Limit, Text, add_cgroups
from test_tuning_keeper import OFFLOAD, journal_path, kernel_as_usual  # noqa: F401  fixtures

from moetuned.daemon.tuning_keeper import TuningKeeper
from moetuned.decide.protection import RETRY_SECONDS
from moetuned.host import service_manager
from moetuned.host.fs import RealFS
from moetuned.host.systemd_booted import BOOTED
from moetuned.schema.config import Backend, Config


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
