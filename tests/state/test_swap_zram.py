from __future__ import annotations

import errno
from collections.abc import Iterator

import msgspec
import pytest
from fakes.fake_swap import GIB, FakeMachine, FakeSwapHost, FakeZram, Fuse, state_disk

from moetuned.schema.swap import SwapKind, SwapStep, SwapStepKind, ZramLook
from moetuned.state.swap_file import Whose
from moetuned.state.swap_record import HeldZram, Stage, SwapStore, open_store
from moetuned.state.swap_zram import finish_zram, keep_zram, make_zram, take_zram, verify_zram, whose_zram

BOOT = "boot-1"
STEP = SwapStep("swap zram", SwapKind.ZRAM, SwapStepKind.MAKE, "1.0 GiB", "because", size_bytes=GIB, priority=100)


class Scene:
    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.host = FakeSwapHost(machine)

    @property
    def store(self) -> SwapStore:
        return open_store("/state")

    @property
    def held(self) -> HeldZram:
        held = self.store.record.zram
        assert held is not None
        return held

    @property
    def devices(self) -> dict[int, FakeZram]:
        assert self.machine.zram is not None
        return self.machine.zram


@pytest.fixture(params=["built in", "module"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    built_in = request.param == "built in"
    made = Scene(FakeMachine(zram={} if built_in else None, zram_built_in=built_in))
    with state_disk(made.machine, Fuse()):
        yield made


@pytest.fixture
def made(scene: Scene) -> Scene:
    assert make_zram(scene.host, scene.store, STEP, BOOT).state == "applied"
    return scene


def test_it_is_made_and_on(made: Scene) -> None:
    device = made.devices[0]
    assert (device.on, device.size_bytes, device.priority, device.uuid) == (True, GIB, 100, made.held.uuid)
    assert (made.held.number, made.held.sequence, made.held.stage, made.held.on) == (0, 100, Stage.MADE, True)
    assert (made.store.record.module_boot_id is None) == made.machine.zram_built_in


def test_it_is_taken_away_and_the_module_too_if_moetuned_loaded_it(made: Scene) -> None:
    view = take_zram(made.host, made.store, BOOT)
    assert view is not None
    assert (view.state, view.now) == ("restored", "none")
    assert made.machine.zram == ({} if made.machine.zram_built_in else None)
    assert made.machine.disk == {}
    assert take_zram(made.host, made.store, BOOT) is None


def test_the_module_stays_where_somebody_else_uses_it(made: Scene) -> None:
    number = made.machine.add_zram("other")
    view = take_zram(made.host, made.store, BOOT)
    assert view is not None
    assert view.state == "restored"
    assert list(made.devices) == [number]
    assert ("somebody else uses it" in view.detail) == (not made.machine.zram_built_in)
    assert made.machine.disk == {}


@pytest.mark.parametrize("fails", ["add_zram", "set_up_zram", "make_signature", "swap_on"])
def test_what_fails_is_taken_back_and_said(scene: Scene, fails: str) -> None:
    scene.host.fails = {fails: errno.ENOMEM}
    view = make_zram(scene.host, scene.store, STEP, BOOT)
    assert view.state == "failed"
    assert "not enough memory" in view.detail
    assert not scene.machine.zram
    assert scene.machine.disk == {}


def test_a_module_that_cannot_be_loaded() -> None:
    scene = Scene(FakeMachine(zram=None, zram_built_in=False, zram_exists=False))
    with state_disk(scene.machine, Fuse()):
        assert make_zram(scene.host, scene.store, STEP, BOOT).state == "failed"
    assert (scene.machine.zram, scene.machine.disk) == (None, {})


def test_a_kernel_that_does_not_tell_devices_apart(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene.host, "look_at_zram", lambda number: ZramLook(number, None))
    view = make_zram(scene.host, scene.store, STEP, BOOT)
    assert "diskseq, Linux 5.15" in view.detail
    assert not scene.machine.zram


def test_a_full_disk_after_the_device_was_added_removes_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    add = scene.host.add_zram

    def then_full() -> int:
        scene.machine.disk_full = True
        return add()

    monkeypatch.setattr(scene.host, "add_zram", then_full)
    view = make_zram(scene.host, scene.store, STEP, BOOT)
    assert "No space left" in view.detail
    assert not scene.machine.zram


@pytest.mark.parametrize(
    ("change", "stage", "whose"),
    [
        ({}, Stage.MADE, Whose.OURS),
        ({"sequence": 555}, Stage.MADE, Whose.FOREIGN),
        ({"size_bytes": 0, "uuid": None, "blank": True}, Stage.MADE, Whose.OURS),
        ({"size_bytes": 5}, Stage.MADE, Whose.FOREIGN),
        ({"uuid": "other"}, Stage.MADE, Whose.FOREIGN),
        ({"uuid": None, "blank": True}, Stage.MADE, Whose.FOREIGN),
        ({"uuid": None, "blank": True}, Stage.ADDED, Whose.OURS),
        ({"uuid": None, "blank": False}, Stage.ADDED, Whose.FOREIGN),
    ],
)
def test_whose_it_is(made: Scene, change: dict[str, object], stage: Stage, whose: Whose) -> None:
    for name, value in change.items():
        setattr(made.devices[0], name, value)
    held = msgspec.structs.replace(made.held, stage=stage)
    assert whose_zram(made.host, held, BOOT) is whose
    assert whose_zram(made.host, held, "boot-2") is Whose.GONE
    made.devices.clear()
    assert whose_zram(made.host, held, BOOT) is Whose.GONE


@pytest.mark.parametrize(("size", "whose"), [(0, Whose.OURS), (GIB, Whose.FOREIGN)])
def test_of_an_unknown_number_only_an_empty_device_is_ours(scene: Scene, size: int, whose: Whose) -> None:
    scene.machine.zram = {0: FakeZram(1, "other"), 1: FakeZram(2, "?", size)}
    held = HeldZram(BOOT, "u", GIB, Stage.MAKING, (0,))
    assert whose_zram(scene.host, held, BOOT) is whose


def test_the_next_boot_has_none_and_makes_it_anew(made: Scene) -> None:
    made.machine.reboot()
    assert verify_zram(made.host, made.held, "1 GiB", "", "boot-2").state == "planned"
    assert finish_zram(made.host, made.store, "boot-2") is None
    assert made.machine.disk == {}


def test_what_somebody_swapped_off_is_left_off(made: Scene) -> None:
    made.devices[0].on = False
    assert keep_zram(made.host, made.store, STEP).state == "drifted"
    assert verify_zram(made.host, made.held, None, "", BOOT).state == "drifted"
    view = take_zram(made.host, made.store, BOOT)
    assert view is not None
    assert view.state == "restored"
    assert not made.machine.zram


def test_a_device_of_somebody_else_under_the_same_number_stays(made: Scene) -> None:
    made.devices.clear()
    number = made.machine.add_zram("other")
    made.devices[number].size_bytes = GIB
    assert number == made.held.number
    view = finish_zram(made.host, made.store, BOOT)
    assert view is not None
    assert view.state == "drifted"
    assert list(made.devices) == [number]
    take_zram(made.host, made.store, BOOT)
    assert list(made.devices) == [number]
    assert made.store.record.zram is None
    assert made.store.record.zram_yielded is not None


def test_a_device_that_somebody_reset_is_removed_and_said(made: Scene) -> None:
    device = made.devices[0]
    device.on, device.size_bytes, device.uuid, device.blank = False, 0, None, True
    view = finish_zram(made.host, made.store, BOOT)
    assert view is not None
    assert (view.state, view.detail) == ("drifted", "somebody reset it")
    assert not made.machine.zram


def test_what_does_not_fit_is_kept(made: Scene) -> None:
    made.devices[0].used_bytes, made.machine.available_bytes = GIB // 2, GIB
    view = take_zram(made.host, made.store, BOOT)
    assert view is not None
    assert view.state == "failed"
    assert view.detail == made.held.kept
    assert "(/dev/zram0) is kept on: it holds 512 MiB" in view.detail
    assert made.devices[0].on
    assert verify_zram(made.host, made.held, "none", "", BOOT).detail == view.detail


@pytest.mark.parametrize(
    ("call", "said"),
    [("swap_off", "another process is still swapping it off"), ("remove_zram", "could not be removed")],
)
def test_what_cannot_be_taken_away_is_tried_again(made: Scene, call: str, said: str) -> None:
    made.host.fails = {call: errno.EBUSY}
    view = take_zram(made.host, made.store, BOOT)
    assert view is not None
    assert view.state == "failed"
    assert said in view.detail
    made.host.fails = {}
    view = take_zram(made.host, made.store, BOOT)
    assert view is not None
    assert view.state == "restored"
    assert not made.machine.zram


def test_a_full_disk_removes_the_device_that_was_added_whatever_number_it_got(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = scene.host.add_zram

    def after_somebody_else() -> int:
        scene.devices[scene.machine.add_zram("other")].size_bytes = GIB
        scene.machine.disk_full = True
        return add()

    monkeypatch.setattr(scene.host, "add_zram", after_somebody_else)
    assert make_zram(scene.host, scene.store, STEP, BOOT).state == "failed"
    assert scene.machine.made_by("moetuned") == []
    assert scene.machine.made_by("other") == ["zram0"]


def test_a_device_beside_others_is_taken_away_by_its_own_number(scene: Scene) -> None:
    scene.machine.zram = {0: FakeZram(1, "other", GIB), 2: FakeZram(2, "other", GIB)}
    assert make_zram(scene.host, scene.store, STEP, BOOT).state == "applied"
    scene.devices[3] = scene.devices.pop(1)
    with_number = msgspec.structs.replace(scene.held, number=3)
    scene.store.hold_zram(with_number)
    assert with_number.expected == 1
    view = take_zram(scene.host, scene.store, BOOT)
    assert view is not None
    assert view.state == "restored"
    assert list(scene.devices) == [0, 2]


def test_one_that_was_being_added_is_taken_away_by_the_number_the_kernel_would_give(scene: Scene) -> None:
    scene.machine.zram = {0: FakeZram(1, "other", GIB), 1: FakeZram(2, "moetuned")}
    scene.store.hold_zram(HeldZram(BOOT, "00000000-0000-4000-8000-000000000000", GIB, Stage.MAKING, (0,)))
    view = take_zram(scene.host, scene.store, BOOT)
    assert view is not None
    assert view.state == "restored"
    assert list(scene.devices) == [0]


def test_one_that_was_never_swapped_on_is_swapped_on_now_and_known_to_be(made: Scene) -> None:
    made.devices[0].on = False
    made.store.hold_zram(msgspec.structs.replace(made.held, on=False))
    assert keep_zram(made.host, made.store, STEP).state == "applied"
    assert (made.devices[0].on, made.held.on) == (True, True)


def test_what_a_reboot_took_is_said_to_be_gone(made: Scene) -> None:
    made.machine.reboot()
    view = take_zram(made.host, made.store, "boot-2")
    assert view is not None
    assert (view.state, view.detail.partition(";")[0]) == ("restored", "gone with the reboot")


def test_a_module_that_somebody_loaded_in_this_boot_stays(made: Scene) -> None:
    made.machine.reboot()
    made.machine.zram = {}
    take_zram(made.host, made.store, "boot-2")
    assert made.machine.zram == {}
    assert made.machine.disk == {}


@pytest.mark.parametrize(("stage", "state"), [(Stage.MADE, "drifted"), (Stage.REMOVING, "restored")])
def test_one_that_is_gone_while_it_was_taken_away_was_not_somebody_elses_doing(
    made: Scene, stage: Stage, state: str
) -> None:
    made.store.hold_zram(msgspec.structs.replace(made.held, stage=stage))
    made.devices.clear()
    view = take_zram(made.host, made.store, BOOT)
    assert view is not None
    assert view.state == state


def test_what_failed_and_could_not_be_taken_back_says_both(scene: Scene) -> None:
    scene.host.fails = {"swap_on": errno.ENOMEM, "remove_zram": errno.EBUSY}
    said = make_zram(scene.host, scene.store, STEP, BOOT).detail
    assert "it could not be made: there is not enough memory" in said
    assert "it could not be removed: it is in use" in said
    scene.host.fails = {"swap_on": errno.ENOMEM}
    take_zram(scene.host, scene.store, BOOT)
    assert ";" not in make_zram(scene.host, scene.store, STEP, BOOT).detail
