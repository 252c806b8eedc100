"""What the kernel changes along with a setting comes back with it, whoever else has a hand in it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from fakes.fake_kernel import BOOT_ID, FakeKernel, usual_kernel
from tuning_scenes import MIN_FREE, MOE, QUEUE, THP, VM, kernel_with_disk, steps_for

from moetuned.schema.config import Profile, Tuning
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Cell, Codec, Place
from moetuned.state import side_effects, tuning
from moetuned.state.side_effects import Target
from moetuned.state.undo_journal import UndoJournal, open_journal, read_journal
from moetuned.state.undo_records import Held, SideEffect

BOTH = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.min_free_kbytes": 100000})
WITHOUT_THP = Tuning(profile=Profile.MOE_OFFLOAD, thp="keep", sysctl={"vm.min_free_kbytes": 100000})
WITHOUT_MIN = MOE


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "undo.jsonl")


def apply(kernel: FakeKernel, journal: UndoJournal, wanted: Tuning = MOE) -> dict[str, TunableView]:
    return {view.name: view for view in tuning.apply(kernel, journal, steps_for(kernel, wanted, journal))}


def number(kernel: FakeKernel, path: str = MIN_FREE) -> int:
    return int(kernel.foreign_read(kernel.follow(path)))


def written_by_somebody(value: int) -> FakeKernel:
    """The kernel computes it anew until somebody writes it, and then keeps the larger of the two."""
    kernel = usual_kernel()
    kernel.foreign_write(MIN_FREE, str(value))
    return kernel


@pytest.mark.parametrize("make", [usual_kernel, lambda: written_by_somebody(10000), lambda: written_by_somebody(90000)])
def test_what_the_kernel_changed_comes_back(make, path: str) -> None:
    kernel = make()
    before = kernel.settings()
    with open_journal(path, BOOT_ID) as journal:
        apply(kernel, journal)
        assert number(kernel) == (90000 if "90000" in before[MIN_FREE] else 19829)
        views = tuning.rollback(kernel, journal)
    assert {view.state for view in views} == {"restored"}
    assert kernel.settings() == before


def test_its_value_is_on_disk_before_the_write_and_what_became_of_it_after(path: str) -> None:
    kernel = usual_kernel()
    seen = []

    def look(operation: str, where: str) -> None:
        if (operation, where) == ("write", THP):
            seen.append(read_journal(path, BOOT_ID).held["transparent_hugepage"].beside)

    kernel.before = look
    with open_journal(path, BOOT_ID) as journal:
        apply(kernel, journal)
        (side,) = journal.held["transparent_hugepage"].beside
    assert [[(each.original.value, each.made) for each in beside] for beside in seen] == [[("67584", None)]]
    assert (side.original.value, side.made) == ("67584", Cell(MIN_FREE, "19829"))


def test_what_somebody_changed_since_is_reported_and_left_alone(path: str) -> None:
    kernel = usual_kernel()
    with open_journal(path, BOOT_ID) as journal:
        apply(kernel, journal)
        kernel.foreign_write(MIN_FREE, "30000")
        views = {view.name: view for view in tuning.rollback(kernel, journal)}
    assert views["transparent_hugepage"].state == "restored"
    assert (views["vm.min_free_kbytes"].state, views["vm.min_free_kbytes"].now) == ("drifted", "30000")
    assert views["vm.min_free_kbytes"].detail == (
        "it was 19829 since moetuned set transparent_hugepage, somebody changed it to 30000; left alone"
    )
    assert number(kernel) == 30000, "also where writing the original back changes it once more"


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize(
    ("setting", "chosen", "beside", "before", "after"),
    [
        (THP, "always", MIN_FREE, 30000, 67584),
        (THP, "never", MIN_FREE, 30000, 67584),
        (QUEUE + "scheduler", "kyber", QUEUE + "nr_requests", 99, 256),
    ],
)
def test_what_stands_beside_a_setting_that_somebody_put_back_is_theirs(
    setting: str, chosen: str, beside: str, before: int, after: int, noticed: bool, path: str
) -> None:
    """Whether the daemon saw it before the rollback or not."""
    kernel = kernel_with_disk()
    kernel.foreign_write(kernel.follow(setting), chosen)
    kernel.foreign_write(kernel.follow(beside), str(before))
    wanted = Tuning(profile=Profile.MOE_OFFLOAD, thp="madvise", scheduler="mq-deadline")
    with open_journal(path, BOOT_ID) as journal:
        apply(kernel, journal, wanted)
        (name,) = (entry.tunable for entry in journal.held.values() if entry.place.path == setting)
        kernel.foreign_write(kernel.follow(setting), chosen)
        assert number(kernel, beside) == after, "the kernel has computed it for them"
        if noticed:
            tuning.confirm_drift(kernel, journal, steps_for(kernel, wanted, journal), [name])
        views = [view for view in tuning.rollback(kernel, journal) if view.original == str(before)]
        assert journal.held == {}
    assert number(kernel, beside) == after
    details = [] if noticed else [f"somebody changed it, or {name}, after moetuned had; left alone"]
    assert [(view.state, view.detail) for view in views] == [("drifted", detail) for detail in details]


def test_what_somebody_put_there_is_the_original_of_the_next_write(path: str) -> None:
    kernel = usual_kernel()
    with open_journal(path, BOOT_ID) as journal:
        apply(kernel, journal)
        kernel.foreign_write(MIN_FREE, "10000")
        always = Tuning(profile=Profile.MOE_OFFLOAD, thp="always")
        assert apply(kernel, journal, always)["transparent_hugepage"].state == "applied"
        assert number(kernel) == 67584
        tuning.rollback(kernel, journal)
    assert number(kernel) == 10000


def test_a_side_effect_that_cannot_be_read_is_skipped(path: str) -> None:
    kernel = usual_kernel()
    del kernel.files[MIN_FREE]
    before = kernel.settings()
    with open_journal(path, BOOT_ID) as journal:
        assert apply(kernel, journal)["transparent_hugepage"].state == "applied"
        assert journal.held["transparent_hugepage"].beside == ()
        tuning.rollback(kernel, journal)
    assert kernel.settings() == before


def test_one_that_is_gone_later_is_skipped_too(path: str) -> None:
    kernel = usual_kernel()
    with open_journal(path, BOOT_ID) as journal:
        apply(kernel, journal)
        del kernel.files[MIN_FREE]
        assert {view.state for view in tuning.rollback(kernel, journal)} == {"restored"}
        assert journal.held == {}


def test_one_that_cannot_be_written_back_is_tried_again(path: str) -> None:
    kernel = written_by_somebody(10000)
    before = kernel.settings()
    with open_journal(path, BOOT_ID) as journal:
        apply(kernel, journal)
        kernel.fail("write", MIN_FREE, errno.EIO)
        view = next(v for v in tuning.rollback(kernel, journal) if v.name == "transparent_hugepage")
        assert view.state == "failed"
        assert "10000 could not be written back" in view.detail
        assert MIN_FREE in view.detail
        assert list(journal.held) == ["transparent_hugepage"]
    with open_journal(path, BOOT_ID) as journal:
        assert {view.state for view in tuning.rollback(kernel, journal)} == {"restored"}
    assert kernel.settings() == before


@pytest.mark.parametrize("first", [MOE, WITHOUT_THP, BOTH])
@pytest.mark.parametrize("last", [MOE, WITHOUT_THP, BOTH])
@pytest.mark.parametrize("make", [usual_kernel, lambda: written_by_somebody(10000), lambda: written_by_somebody(90000)])
def test_a_side_effect_that_is_a_tunable_too_comes_right_in_any_order(make, first, last, path: str) -> None:
    kernel = make()
    before = kernel.settings()
    with open_journal(path, BOOT_ID) as journal:
        for wanted in (first, BOTH, last):
            views = apply(kernel, journal, wanted)
            assert {view.state for view in views.values()} <= {"applied", "already", "restored"}
            if wanted is not MOE:
                assert number(kernel) == 100000
                assert journal.held["vm.min_free_kbytes"].original.value == before[MIN_FREE].strip()
            seen = tuning.verify(kernel, journal.held, steps_for(kernel, wanted, journal))
            assert {view.state for view in seen} <= {"applied", "already"}
        assert {view.state for view in tuning.rollback(kernel, journal)} == {"restored"}
    assert kernel.settings() == before


def test_a_bound_that_the_original_keeps_is_met_by_the_original(path: str) -> None:
    """The kernel lowers it along with huge pages; at-least is content with what was there before."""
    kernel = usual_kernel()
    before = kernel.settings()
    wanted = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.min_free_kbytes": "at-least 40000"})
    with open_journal(path, BOOT_ID) as journal:
        assert apply(kernel, journal, wanted)["vm.min_free_kbytes"].state == "already"
        assert (number(kernel), "vm.min_free_kbytes" in journal.held) == (67584, False)
        count = len(kernel.writes())
        apply(kernel, journal, wanted)
        assert len(kernel.writes()) == count
        tuning.rollback(kernel, journal)
    assert kernel.settings() == before


def test_what_stands_as_wanted_already_still_does_when_all_is_written(path: str) -> None:
    kernel = usual_kernel()
    before = kernel.settings()
    wanted = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={"vm.min_free_kbytes": 67584})
    with open_journal(path, BOOT_ID) as journal:
        assert apply(kernel, journal, wanted)["vm.min_free_kbytes"].state == "already"
        assert number(kernel) == 67584
        tuning.rollback(kernel, journal)
    assert kernel.settings() == before


def disk(scheduler: str | None = None, nr_requests: int | None = None) -> Tuning:
    return Tuning(profile=Profile.MOE_OFFLOAD, scheduler=scheduler, nr_requests=nr_requests)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "story",
    [
        [disk("mq-deadline")],
        [disk("mq-deadline", 32)],
        [disk(None, 32), disk("bfq", 32)],
        [disk("kyber"), disk("kyber", 512), disk("bfq", 512)],
        [disk("kyber", 512), disk(None, 32), disk("mq-deadline")],
        [disk("bfq", 64)],
        [disk("mq-deadline", 512), disk("none", 64)],
    ],
    ids=lambda story: f"{len(story)} plans",
)
def test_a_disk_and_its_queue(story: list[Tuning], path: str) -> None:
    kernel = kernel_with_disk()
    before = kernel.settings()
    with open_journal(path, BOOT_ID) as journal:
        for wanted in story:
            apply(kernel, journal, wanted)
            if wanted.nr_requests is not None:
                assert number(kernel, QUEUE + "nr_requests") == wanted.nr_requests
            steps = steps_for(kernel, wanted, journal)
            assert {view.state for view in tuning.verify(kernel, journal.held, steps)} <= {"applied", "already"}
        assert {view.state for view in tuning.rollback(kernel, journal)} == {"restored"}
    assert kernel.settings() == before


def test_a_queue_that_does_not_fit_the_old_scheduler_gives_way(path: str) -> None:
    """512 requests may wait with a scheduler, 128 without: dropping the scheduler alone must not lose the original."""
    kernel = kernel_with_disk()
    before = kernel.settings()
    with open_journal(path, BOOT_ID) as journal:
        apply(kernel, journal, disk("mq-deadline", 512))
        apply(kernel, journal, disk(None, 512))
        assert "scheduler vda" not in journal.held
        tuning.rollback(kernel, journal)
    assert kernel.settings() == before


def test_a_scheduler_that_somebody_switched_takes_its_queue_along(path: str) -> None:
    kernel, alone = kernel_with_disk(), kernel_with_disk()
    where = kernel.follow(QUEUE + "scheduler")
    with open_journal(path, BOOT_ID) as journal:
        apply(kernel, journal, disk("mq-deadline"))
        for each in (kernel, alone):
            each.foreign_write(where, "kyber")
        tuning.rollback(kernel, journal)
    assert kernel.settings() == alone.settings()


PLACE = Place(MIN_FREE, Codec.INTEGER)
A, B, F, M = (Cell(MIN_FREE, value) for value in ("67584", "19829", "30000", "100000"))
MAIN = Place(THP, Codec.CHOICE)


def held(name: str, place: Place, original: Cell, ours: Cell, beside: tuple[SideEffect, ...] = ()) -> Held:
    return Held(name, place, original, ours, (ours,), 1, 1, ours, settled=True, beside=beside)


THP_HELD = held("thp", MAIN, Cell(THP, "madvise"), Cell(THP, "never"), (SideEffect(PLACE, A, B),))
MIN_HELD = held("vm.min_free_kbytes", PLACE, A, M)


def test_whose_value_was_there_first() -> None:
    kernel = usual_kernel()
    kernel.foreign_write(THP, "never")
    assert side_effects.origin(kernel, {}, PLACE, B) == B
    assert side_effects.origin(kernel, {"thp": THP_HELD}, PLACE, B) == A
    assert side_effects.origin(kernel, {"thp": THP_HELD}, PLACE, F) == F
    assert side_effects.origin(kernel, {"min": MIN_HELD}, PLACE, M) == A
    kernel.foreign_write(THP, "always")
    assert side_effects.origin(kernel, {"thp": THP_HELD}, PLACE, B) == B, "theirs, whatever it is"
    assert side_effects.owner_of({"thp": THP_HELD}, PLACE) is None
    assert side_effects.owner_of({"thp": THP_HELD, "min": MIN_HELD}, PLACE) == MIN_HELD


@pytest.mark.parametrize(
    ("now", "sure", "owned", "cell", "foreign"),
    [
        (A, True, False, A, False),
        (B, True, False, A, False),
        (F, True, False, F, True),
        (F, False, False, A, False),
        (M, True, True, M, False),
        (F, True, True, F, False),
        (B, True, True, A, False),
        (F, False, True, M, False),
        (A, False, True, A, False),
    ],
)
def test_what_shall_stand_there(now: Cell, sure: bool, owned: bool, cell: Cell, foreign: bool) -> None:
    kernel = usual_kernel()
    kernel.foreign_write(MIN_FREE, now.value)
    entries = {"thp": THP_HELD} | ({"min": MIN_HELD} if owned else {})
    (target,) = side_effects.targets(kernel, entries, THP_HELD, sure=sure)
    assert (target.cell, target.foreign) == (cell, foreign)


@pytest.mark.parametrize(
    ("now", "owned", "found"), [(A, False, ()), (B, False, (B,)), (F, False, (F,)), (M, True, ()), (None, False, ())]
)
def test_what_does_not_stand_as_before(now: Cell | None, owned: bool, found: tuple[Cell, ...]) -> None:
    kernel = usual_kernel()
    if now is None:
        del kernel.files[MIN_FREE]
    else:
        kernel.foreign_write(MIN_FREE, now.value)
    entries = {"thp": THP_HELD} | ({"min": MIN_HELD} if owned else {})
    assert tuple(cell for _, cell in side_effects.changed(kernel, entries, THP_HELD)) == found


def test_settling_what_stands_already_writes_nothing() -> None:
    kernel = usual_kernel()
    assert side_effects.settle(kernel, {}, [Target(SideEffect(PLACE, A), A)], print) is None
    assert kernel.writes() == []
    kernel.fail("write", MIN_FREE, errno.EPERM)
    assert "may not be changed" in (side_effects.settle(kernel, {}, [Target(SideEffect(PLACE, A), B)], print) or "")


def test_without_anything_beside_nothing_is_looked_at() -> None:
    kernel = usual_kernel()
    side_effects.put_back_owned(kernel, {"min": MIN_HELD})
    assert kernel.log == []
    assert side_effects.look(kernel, [Place(VM + "nothing", Codec.INTEGER)]) == {}
