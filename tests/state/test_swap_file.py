from __future__ import annotations

import errno
from collections.abc import Iterator

import msgspec
import pytest
from fakes.fake_swap import GIB, FakeMachine, FakeSwapHost, Fuse, state_disk

from moetuned.schema.swap import SwapKind, SwapStep, SwapStepKind
from moetuned.state.swap_file import (
    Whose,
    finish_file,
    keep_file,
    make_file,
    somebody_changed,
    take_file,
    verify_file,
    whose_file,
)
from moetuned.state.swap_record import HeldFile, Stage, SwapRecord, SwapStore, YieldedSwap, open_store

PATH = "/data/swapfile"
BOOT = "boot-1"
STEP = SwapStep(
    "swap file /data/swapfile", SwapKind.FILE, SwapStepKind.MAKE, "4.0 GiB", "because", path=PATH, size_bytes=4 * GIB
)


class Scene:
    def __init__(self) -> None:
        self.machine = FakeMachine()
        self.host = FakeSwapHost(self.machine)

    @property
    def store(self) -> SwapStore:
        return open_store("/state")

    @property
    def held(self) -> HeldFile:
        held = self.store.record.file
        assert held is not None
        return held


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    with state_disk(made.machine, Fuse()):
        yield made


@pytest.fixture
def made(scene: Scene) -> Scene:
    assert make_file(scene.host, scene.store, STEP, BOOT).state == "applied"
    return scene


def test_it_is_made_under_another_name_and_swapped_on_last(made: Scene) -> None:
    assert made.host.calls == [
        "create_file",
        "fill_file",
        "make_signature",
        "flush_file",
        "move_into_place",
        "swap_on",
    ]
    file = made.machine.at(PATH)
    assert file is not None
    assert (file.on, file.size_bytes, file.uuid) == (True, 4 * GIB, made.held.uuid)
    assert (made.held.stage, made.held.on_boot_id, made.held.mount_point) == (Stage.MADE, BOOT, "/data")
    assert list(made.machine.files) == [("/data", PATH)]


@pytest.mark.parametrize(
    "fails", ["create_file", "fill_file", "make_signature", "flush_file", "move_into_place", "swap_on"]
)
def test_what_fails_is_taken_back_and_said(scene: Scene, fails: str) -> None:
    scene.host.fails = {fails: errno.ENOSPC}
    view = make_file(scene.host, scene.store, STEP, BOOT)
    assert (view.state, view.detail) == ("failed", "it could not be made: no room left")
    assert (scene.machine.files, scene.machine.disk) == ({}, {})


def test_a_file_system_whose_file_the_kernel_does_not_take(scene: Scene) -> None:
    scene.machine.takes_swap = False
    view = make_file(scene.host, scene.store, STEP, BOOT)
    assert "does not take it as swap on this file system" in view.detail
    assert scene.machine.files == {}


def test_a_full_disk_for_the_record_makes_nothing(scene: Scene) -> None:
    scene.machine.disk_full = True
    view = make_file(scene.host, scene.store, STEP, BOOT)
    assert view.state == "failed"
    assert "No space left" in view.detail
    assert scene.host.calls == []


def test_on_btrfs_it_has_no_copy_on_write(scene: Scene) -> None:
    scene.machine.filesystem = "btrfs"
    step = msgspec.structs.replace(STEP, filesystem="btrfs")
    assert make_file(scene.host, scene.store, step, BOOT).state == "applied"


@pytest.mark.parametrize(
    ("change", "whose"),
    [
        ({}, Whose.OURS),
        ({"mode": 0o644, "owner": 5, "size_bytes": 1}, Whose.OURS),
        ({"inode": 99}, Whose.FOREIGN),
        ({"uuid": None}, Whose.FOREIGN),
        ({"uuid": "other"}, Whose.FOREIGN),
        ({"regular": False}, Whose.FOREIGN),
    ],
)
def test_whose_it_is(made: Scene, change: dict[str, object], whose: Whose) -> None:
    file = made.machine.at(PATH)
    for name, value in change.items():
        setattr(file, name, value)
    assert whose_file(made.host, made.held) is whose


def test_after_a_boot_it_is_swapped_on_again(made: Scene) -> None:
    made.machine.reboot()
    assert verify_file(made.host, made.held, "4 GiB", "", "boot-2").state == "planned"
    view = keep_file(made.host, made.store, STEP, "boot-2")
    assert view.state == "applied"
    assert "found again" in view.detail
    assert made.held.on_boot_id == "boot-2"
    assert keep_file(made.host, made.store, STEP, "boot-2").detail == "because"


@pytest.mark.parametrize(("name", "value"), [("mode", 0o644), ("owner", 1000), ("size_bytes", 4096)])
def test_a_file_that_somebody_changed_is_not_swapped_on_again_but_removed(made: Scene, name: str, value: int) -> None:
    made.machine.reboot()
    setattr(made.machine.at(PATH), name, value)
    assert keep_file(made.host, made.store, STEP, "boot-2").state == "drifted"
    assert take_file(made.host, made.store, "boot-2").state == "restored"
    assert made.machine.files == {}


def test_what_somebody_swapped_off_is_left_off_and_removed_at_rollback(made: Scene) -> None:
    file = made.machine.at(PATH)
    assert file is not None
    file.on = False
    assert keep_file(made.host, made.store, STEP, BOOT).state == "drifted"
    assert verify_file(made.host, made.held, None, "", BOOT).detail == "somebody swapped it off; left alone"
    assert not file.on
    assert take_file(made.host, made.store, BOOT).state == "restored"
    assert made.machine.files == {}
    assert made.store.record == SwapRecord(file_yielded=YieldedSwap(BOOT, "", "somebody swapped it off"))


def test_swapping_on_again_that_fails_is_said(made: Scene) -> None:
    made.machine.reboot()
    made.host.fails = {"swap_on": errno.EPERM}
    assert "not root, or a container" in keep_file(made.host, made.store, STEP, "boot-2").detail


@pytest.mark.parametrize(
    ("available", "tight", "why"),
    [(2 * GIB, (), "does not fit into"), (20 * GIB, ("the cgroup /x is tight",), "the cgroup /x is tight")],
)
def test_what_does_not_fit_is_kept_with_the_reason_in_the_record(
    made: Scene, available: int, tight: tuple[str, ...], why: str
) -> None:
    file = made.machine.at(PATH)
    assert file is not None
    file.used_bytes, made.machine.available_bytes, made.machine.tight = 2 * GIB, available, tight
    view = take_file(made.host, made.store, BOOT)
    assert (view.state, file.on, made.held.stage) == ("failed", True, Stage.MADE)
    assert why in view.detail
    assert made.held.kept == view.detail
    assert verify_file(made.host, made.held, "none", "", BOOT).detail == view.detail
    made.machine.available_bytes, made.machine.tight = 20 * GIB, ()
    heard: list[int] = []
    assert take_file(made.host, made.store, BOOT, heard.append).state == "restored"
    assert heard == [2 * GIB]


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EINTR, errno.ETIMEDOUT, errno.EIO])
def test_swapping_off_that_fails_keeps_it_whole(made: Scene, number: int) -> None:
    made.host.fails = {"swap_off": number}
    view = take_file(made.host, made.store, BOOT)
    assert view.state == "failed"
    assert "it is still on" in view.detail
    assert made.held.stage is Stage.MADE
    assert keep_file(made.host, made.store, STEP, BOOT).state == "applied"
    assert made.held.kept == ""


def test_another_process_swaps_it_off_just_now(made: Scene) -> None:
    made.machine.swaps_off_elsewhere = True
    for look in (take_file, finish_file, take_file):
        view = look(made.host, made.store, BOOT)
        assert view is not None
        assert (view.state, "another process" in view.detail) == ("failed", True)
        assert made.held.stage is Stage.REMOVING, "it may be off at any moment, and nobody is to blame then"
    assert verify_file(made.host, made.held, None, "", BOOT).state == "planned"


def test_another_process_has_swapped_it_off(made: Scene) -> None:
    made.store.hold_file(msgspec.structs.replace(made.held, stage=Stage.REMOVING))
    file = made.machine.at(PATH)
    assert file is not None
    file.on = False
    assert verify_file(made.host, made.held, None, "", BOOT).state == "planned"
    assert finish_file(made.host, made.store, BOOT) is None
    assert (made.machine.files, made.machine.disk) == ({}, {})


def test_swapping_off_that_was_cut_short_leaves_it_whole(made: Scene) -> None:
    made.store.hold_file(msgspec.structs.replace(made.held, stage=Stage.REMOVING))
    assert finish_file(made.host, made.store, BOOT) is None
    assert made.held.stage is Stage.MADE
    assert keep_file(made.host, made.store, STEP, BOOT).state == "applied"


def test_a_change_of_the_config_needs_the_record(made: Scene) -> None:
    made.machine.disk_full = True
    view = take_file(made.host, made.store, BOOT, must_record=True)
    file = made.machine.at(PATH)
    assert (view.state, file is not None and file.on) == ("failed", True)
    assert "cannot be written" in view.detail
    assert made.host.calls.count("swap_off") == 0


def test_removing_that_fails_is_tried_again_at_the_next_rollback(made: Scene) -> None:
    made.host.fails = {"remove_file": errno.EROFS}
    assert "Read-only file system" in take_file(made.host, made.store, BOOT).detail
    assert made.held.stage is Stage.REMOVING, "it is off, and moetuned did it"
    made.host.fails = {}
    assert take_file(made.host, made.store, BOOT).state == "restored"


def test_rollback_works_with_a_full_disk(made: Scene) -> None:
    made.machine.disk_full = True
    assert take_file(made.host, made.store, BOOT).state == "restored"
    assert made.machine.files == {}


def test_a_file_system_that_is_not_mounted_keeps_the_record(made: Scene) -> None:
    made.machine.reboot()
    made.machine.data_mounted = False
    for view in (
        take_file(made.host, made.store, "boot-2"),
        finish_file(made.host, made.store, "boot-2"),
        verify_file(made.host, made.held, None, "", "boot-2"),
    ):
        assert view is not None
        assert view.state == "failed"
        assert "mounted on /data" in view.detail
    made.machine.data_mounted = True
    assert take_file(made.host, made.store, "boot-2").state == "restored"
    assert made.machine.files == {}


def test_a_file_that_somebody_put_there_is_never_removed(made: Scene) -> None:
    del made.machine.files[made.machine.key(PATH)]
    other = made.machine.put(PATH, "other", size_bytes=4 * GIB)
    assert other.inode == made.held.inode  # numbers are given again
    assert verify_file(made.host, made.held, None, "", BOOT).state == "drifted"
    view = take_file(made.host, made.store, BOOT)
    assert (view.state, made.machine.at(PATH), made.store.record.file) == ("drifted", other, None)
    assert made.store.record.file_yielded is not None


def test_finishing_says_nothing_of_what_is_well(made: Scene) -> None:
    assert finish_file(made.host, made.store, BOOT) is None
    assert made.held.stage is Stage.MADE
    del made.machine.files[made.machine.key(PATH)]
    view = finish_file(made.host, made.store, BOOT)
    assert view is not None
    assert (view.state, view.detail) == ("drifted", "somebody removed it")
    assert finish_file(made.host, made.store, BOOT) is None


@pytest.mark.parametrize(
    ("whose", "stages"),
    [
        (Whose.OURS, set()),
        (Whose.GONE, {Stage.MADE}),
        (Whose.FOREIGN, {Stage.MADE, Stage.REMOVING}),
    ],
)
def test_what_somebody_else_did(whose: Whose, stages: set[Stage]) -> None:
    assert {stage for stage in Stage if somebody_changed(whose, stage)} == stages


def test_one_that_was_being_made_and_is_not_there_is_forgotten(scene: Scene) -> None:
    uuid = scene.host.new_uuid()
    scene.store.hold_file(HeldFile(PATH, uuid, 4 * GIB, Stage.MAKING, BOOT, mount_point="/data"))
    scene.machine.put(scene.held.temporary, "moetuned")
    assert finish_file(scene.host, scene.store, BOOT) is None
    assert (scene.machine.files, scene.machine.disk) == ({}, {})


def test_one_that_was_moved_into_place_but_not_recorded_so_is_whole(made: Scene) -> None:
    made.store.hold_file(msgspec.structs.replace(made.held, stage=Stage.MAKING))
    assert finish_file(made.host, made.store, BOOT) is None
    assert made.held.stage is Stage.MADE
    assert list(made.machine.files) == [("/data", PATH)]


@pytest.mark.parametrize(("fails", "state"), [({}, None), ({"remove_file": errno.EROFS}, "failed")])
def test_one_that_was_being_taken_away_is_taken_away(made: Scene, fails: dict[str, int], state: str | None) -> None:
    made.store.hold_file(msgspec.structs.replace(made.held, stage=Stage.REMOVING))
    file = made.machine.at(PATH)
    assert file is not None
    file.on, made.host.fails = False, fails
    view = finish_file(made.host, made.store, BOOT)
    assert (None if view is None else view.state) == state
    assert (made.machine.files == {}) is (state is None)
