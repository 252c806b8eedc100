"""Every crash and every interleaving: nothing of ours is left behind, and nothing of anybody else is touched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.fake_swap import GIB, MODES, Crash, FakeMachine, FakeSwapHost, Fuse, state_disk
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import Swap
from moetuned.state import swap

STATE = "/var/lib/moetuned"
PATH = "/data/swapfile"
BOTH = Swap(file=PATH, size="4GiB", zram="1GiB")
WISHES: tuple[Swap | None, ...] = (
    BOTH,
    Swap(file=PATH, size="2GiB"),
    Swap(file="/var/lib/moetuned/swapfile", zram="auto", priority=7),
    Swap(zram="1GiB"),
    None,
)


def run(
    machine: FakeMachine, what: Callable[[FakeSwapHost], tuple[TunableView, ...]], fuse: Fuse
) -> tuple[TunableView, ...]:
    with state_disk(machine, fuse):
        return what(FakeSwapHost(machine, fuse))


def apply(machine: FakeMachine, wish: Swap | None, fuse: Fuse | None = None) -> tuple[TunableView, ...]:
    return run(machine, lambda host: swap.apply_slowly(host, STATE, wish), fuse or Fuse())


def rollback(machine: FakeMachine, fuse: Fuse | None = None) -> tuple[TunableView, ...]:
    return run(machine, lambda host: swap.rollback_slowly(host, STATE), fuse or Fuse())


def modular() -> FakeMachine:
    return FakeMachine(zram=None, zram_built_in=False)


def steps_of(what: Callable[[Fuse], object]) -> int:
    fuse = Fuse()
    what(fuse)
    return fuse.count


APPLY_STEPS = steps_of(lambda fuse: apply(modular(), BOTH, fuse))


def applied(make: Callable[[], FakeMachine] = modular) -> FakeMachine:
    machine = make()
    assert {view.state for view in apply(machine, BOTH)} == {"applied"}
    return machine


ROLLBACK_STEPS = steps_of(lambda fuse: rollback(applied(), fuse))


def assert_as_new(machine: FakeMachine) -> None:
    assert machine.made_by("moetuned") == []
    assert machine.disk == {}
    assert not machine.zram if machine.zram_built_in else machine.zram is None


def test_there_are_as_many_steps_as_the_tests_below_believe() -> None:
    assert APPLY_STEPS > 20
    assert ROLLBACK_STEPS > 6


@pytest.mark.parametrize("make", [modular, FakeMachine])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", range(1, APPLY_STEPS + 1))
def test_killed_at_each_step_of_apply_then_rolled_back(at: int, mode: str, make: Callable[[], FakeMachine]) -> None:
    machine = make()
    fuse = Fuse(at, mode)
    try:
        apply(machine, BOTH, fuse)
    except Crash:
        assert fuse.dead
    views = rollback(machine)
    assert all(view.state == "restored" for view in views)
    assert_as_new(machine)


@pytest.mark.parametrize("reboot", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", range(1, APPLY_STEPS + 1))
def test_killed_at_each_step_of_apply_then_applied_again(at: int, mode: str, reboot: bool) -> None:
    machine = modular()
    with pytest.raises(Crash):
        apply(machine, BOTH, Fuse(at, mode))
    if reboot:
        machine.reboot()
    assert {view.state for view in apply(machine, BOTH)} == {"applied"}
    file = machine.at(PATH)
    assert file is not None
    assert file.on
    assert machine.made_by("moetuned") == [PATH, "zram0"]
    rollback(machine)
    assert_as_new(machine)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", range(1, ROLLBACK_STEPS + 1))
def test_killed_at_each_step_of_rollback(at: int, mode: str) -> None:
    machine = applied()
    with pytest.raises(Crash):
        rollback(machine, Fuse(at, mode))
    rollback(machine)
    assert_as_new(machine)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", range(1, 30))
def test_killed_at_each_step_of_a_resize(at: int, mode: str) -> None:
    machine = applied()
    try:
        apply(machine, Swap(file=PATH, size="2GiB", zram="2GiB"), Fuse(at, mode))
    except Crash:
        pass
    rollback(machine)
    assert_as_new(machine)


class World:
    """A machine with somebody else on it, whose things are counted."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine

    def others(self) -> list[str]:
        return self.machine.made_by("other")

    def remove_file(self) -> None:
        file = self.machine.at(PATH)
        if file is not None:
            file.on, file.used_bytes = False, 0
            del self.machine.files[self.machine.key(PATH)]

    def replace_file(self) -> None:
        """The inode number is given again."""
        self.remove_file()
        self.machine.put(PATH, "other", size_bytes=4 * GIB)

    def replace_swap_file(self) -> None:
        self.remove_file()
        self.machine.put(PATH, "other", size_bytes=4 * GIB, uuid=self.machine.new_uuid(), blocks=True, on=True)

    def make_it_anew(self) -> None:
        file = self.machine.at(PATH)
        if file is not None:
            file.on, file.used_bytes, file.uuid, file.maker = False, 0, self.machine.new_uuid(), "other"

    def swap_file_off(self) -> None:
        file = self.machine.at(PATH)
        if file is not None:
            file.on, file.used_bytes = False, 0

    def swap_zram_off(self) -> None:
        for device in (self.machine.zram or {}).values():
            device.on, device.used_bytes = False, 0

    def remove_zram(self) -> None:
        if self.machine.zram:
            self.machine.zram.pop(0, None)

    def add_zram(self) -> None:
        """Takes the lowest number that is free, and is set up at once."""
        if self.machine.zram is None:
            self.machine.zram = {}
        number = self.machine.add_zram("other")
        self.machine.zram[number].size_bytes = GIB

    def replace_zram(self) -> None:
        self.remove_zram()
        self.add_zram()

    def take_zram_over(self) -> None:
        """Resets ours and sets it up with the same size."""
        device = (self.machine.zram or {}).get(0)
        if device is not None:
            device.maker, device.size_bytes, device.uuid, device.blank = "other", GIB, self.machine.new_uuid(), False
            device.on = True

    def reset_zram(self) -> None:
        device = (self.machine.zram or {}).get(0)
        if device is not None and device.maker == "moetuned":
            device.size_bytes, device.uuid, device.blank, device.on, device.used_bytes = 0, None, True, False, 0

    def fill_swap(self) -> None:
        for target in (*self.machine.files.values(), *(self.machine.zram or {}).values()):
            if target.on:
                target.used_bytes = target.size_bytes // 2

    def end_programs(self) -> None:
        self.machine.available_bytes = 30 * GIB

    def take_memory(self) -> None:
        self.machine.available_bytes = GIB // 2

    def squeeze_cgroup(self) -> None:
        self.machine.tight = ("the cgroup of somebody is tight",)

    def relax_cgroup(self) -> None:
        self.machine.tight = ()

    def fill_disk(self) -> None:
        self.machine.disk_full = True

    def empty_disk(self) -> None:
        self.machine.disk_full = False

    def unmount(self) -> None:
        if not any(file.on for (mount, _), file in self.machine.files.items() if mount == "/data"):
            self.machine.data_mounted = False

    def mount(self) -> None:
        self.machine.data_mounted = True

    def reboot(self) -> None:
        self.machine.zram = {number: device for number, device in (self.machine.zram or {}).items() if not device.on}
        self.machine.reboot()


CHANGES = [name for name in vars(World) if not name.startswith("_") and name != "others"]
REMOVES_OTHERS = {
    "remove_file",
    "replace_file",
    "replace_swap_file",
    "remove_zram",
    "replace_zram",
    "reboot",
    "take_zram_over",
}
MOMENTS = st.one_of(
    st.sampled_from(CHANGES),
    st.tuples(
        st.sampled_from(("apply", "rollback")),
        st.integers(0, len(WISHES) - 1),
        st.one_of(st.none(), st.integers(1, APPLY_STEPS)),
        st.sampled_from(MODES),
    ),
)


@settings(max_examples=600, deadline=None)
@given(st.booleans(), st.lists(MOMENTS, max_size=14))
def test_any_story_ends_with_nothing_of_ours_and_all_of_theirs(built_in: bool, story: list[object]) -> None:
    machine = FakeMachine() if built_in else modular()
    world = World(machine)
    for moment in story:
        before = world.others()
        if isinstance(moment, str):
            getattr(world, moment)()
            if moment not in REMOVES_OTHERS:
                assert set(before) <= set(world.others())
            continue
        assert isinstance(moment, tuple)
        what, number, at, mode = moment
        try:
            if what == "apply":
                apply(machine, WISHES[number], Fuse(at, mode))
            else:
                rollback(machine, Fuse(at, mode))
        except Crash:
            pass
        assert sorted(world.others()) == sorted(before)
    machine.disk_full, machine.available_bytes, machine.tight = False, 30 * GIB, ()
    theirs = world.others()
    machine.data_mounted = True
    views = rollback(machine)
    if any(view.state == "failed" for view in views):
        assert any("mounted" in view.detail for view in views)
        machine.data_mounted = False  # it was made below the mount point while nothing was mounted there
        views = rollback(machine)
    assert all(view.state in ("restored", "drifted") for view in views)
    assert machine.made_by("moetuned") == []
    assert sorted(world.others()) == sorted(theirs)
    assert rollback(machine) == ()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(range(len(WISHES))), st.integers(1, APPLY_STEPS), st.sampled_from(MODES)), max_size=5
    )
)
def test_applying_after_any_crashes_is_as_applying_once(crashes: list[tuple[int, int, str]]) -> None:
    machine = modular()
    for number, at, mode in crashes:
        try:
            apply(machine, WISHES[number], Fuse(at, mode))
        except Crash:
            pass
    assert {view.state for view in apply(machine, BOTH) if view.name in (f"swap file {PATH}", "swap zram")} == {
        "applied"
    }
    again = apply(machine, BOTH)
    assert {view.state for view in again} == {"applied"}
    assert machine.made_by("moetuned") == [PATH, "zram0"]
