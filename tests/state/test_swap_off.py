"""Swapping off, of a file and of a zram device: refused, recorded first, lost to somebody else, failed."""

from __future__ import annotations

import errno

import msgspec
import pytest
from fakes.fake_swap import GIB, FakeMachine, FakeSwapHost

from moetuned.state.swap_off import Kept, record_kept, swap_off_recorded
from moetuned.state.swap_record import HeldFile, HeldZram, Stage, SwapRecordError

PATH = "/data/swapfile"
FILE = HeldFile(PATH, "u", GIB, Stage.MADE, "boot-1", inode=11)
ZRAM = HeldZram("boot-1", "u", GIB, Stage.MADE, number=0, sequence=100)


class Scene:
    """A swap file that is on, and what is written into its record."""

    def __init__(self) -> None:
        self.machine = FakeMachine()
        self.file = self.machine.put(PATH, "moetuned", size_bytes=GIB, on=True)
        self.host = FakeSwapHost(self.machine)
        self.recorded: list[HeldFile] = []
        self.disk_full = False

    def hold(self, held: HeldFile) -> HeldFile:
        if self.disk_full:
            raise SwapRecordError("no room left")
        self.recorded.append(held)
        return held

    def off(self, held: HeldFile = FILE, *, must_record: bool = False) -> Kept | None:
        return swap_off_recorded(
            self.host,
            held,
            PATH,
            "the swap",
            is_on=lambda: self.file.on,
            hold=self.hold,
            progress=None,
            patience_seconds=None,
            must_record=must_record,
        )


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("disk_full", [False, True])
def test_it_is_recorded_before_and_done_without_room_for_that(scene: Scene, disk_full: bool) -> None:
    scene.disk_full = disk_full
    assert scene.off() is None
    assert not scene.file.on
    assert [held.stage for held in scene.recorded] == ([] if disk_full else [Stage.REMOVING])


def test_what_does_not_fit_stays_on_and_nothing_is_recorded(scene: Scene) -> None:
    scene.file.used_bytes = scene.machine.available_bytes
    kept = scene.off()
    assert kept is not None
    assert kept.why.startswith("the swap is kept on: it holds")
    assert not kept.going
    assert (scene.file.on, scene.recorded, scene.host.calls) == (True, [], [])


def test_one_that_is_off_is_only_recorded(scene: Scene) -> None:
    scene.file.on = False
    assert scene.off() is None
    assert ([held.stage for held in scene.recorded], scene.host.calls) == ([Stage.REMOVING], [])


def test_one_that_was_never_ready_keeps_its_stage(scene: Scene) -> None:
    scene.off(msgspec.structs.replace(FILE, stage=Stage.MAKING))
    assert scene.recorded == []


@pytest.mark.parametrize(
    ("number", "goes_off", "said"),
    [
        *((number, True, None) for number in (errno.EINVAL, errno.ENOMEM, errno.ETIMEDOUT, errno.EINTR, errno.EBUSY)),
        (errno.EBUSY, False, Kept("another process is still swapping it off", going=True)),
        (errno.ENOMEM, False, Kept("there is not enough memory for what it holds; it is still on")),
        (errno.ETIMEDOUT, False, Kept("it took too long and was stopped; it is still on")),
    ],
)
def test_what_the_kernel_answers_counts_less_than_how_it_is_then(
    scene: Scene, number: int, goes_off: bool, said: Kept | None
) -> None:
    scene.host.fails["swap_off"] = number
    states = iter((True, not goes_off))
    kept = swap_off_recorded(
        scene.host,
        FILE,
        PATH,
        "the swap",
        is_on=lambda: next(states),
        hold=scene.hold,
        progress=None,
        patience_seconds=None,
    )
    assert (kept is None) == (said is None)
    if kept is not None and said is not None:
        assert said.why in kept.why
        assert kept.going == said.going


def test_where_it_must_be_recorded_it_is_left_on_if_it_cannot(scene: Scene) -> None:
    scene.disk_full = True
    kept = scene.off(must_record=True)
    assert kept is not None
    assert (scene.file.on, scene.host.calls, kept.going) == (True, [], False)
    assert "no room left" in kept.why


@pytest.mark.parametrize("held", [FILE, ZRAM], ids=["file", "zram"])
@pytest.mark.parametrize(
    ("stage", "going", "after"),
    [
        (Stage.REMOVING, False, Stage.MADE),
        (Stage.MADE, False, Stage.MADE),
        (Stage.MADE, True, Stage.REMOVING),
        (Stage.REMOVING, True, Stage.REMOVING),
        (Stage.MAKING, False, Stage.MAKING),
        (Stage.MAKING, True, Stage.MAKING),
    ],
)
def test_what_is_kept_is_whole_again_unless_it_may_go_off_and_says_why(
    held: HeldFile | HeldZram, stage: Stage, going: bool, after: Stage
) -> None:
    recorded: list[HeldFile | HeldZram] = []

    def hold(entry: HeldFile | HeldZram) -> HeldFile | HeldZram:
        recorded.append(entry)
        return entry

    record_kept(msgspec.structs.replace(held, stage=stage), Kept("no room", going), hold)
    assert [(each.stage, each.kept) for each in recorded] == [(after, "no room")]


def test_a_full_disk_does_not_keep_it_from_being_said(scene: Scene) -> None:
    scene.disk_full = True
    record_kept(FILE, Kept("no room"), scene.hold)
    assert scene.recorded == []
