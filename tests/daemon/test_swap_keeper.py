"""Swap over a daemon's life: made in a lane, looked at, taken away, and never two of these at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from daemon_fakes import HeldWorkers
from fakes.fake_kernel import FakeKernel, Text, usual_kernel
from fakes.fake_swap import FakeMachine, FakeSwapHost, Fuse, state_disk

from moetuned.daemon.swap_keeper import LOCKED_OUT, NO_LANE, SwapKeeper
from moetuned.schema.config import Config, Profile, Tuning
from moetuned.schema.swap import Swap
from moetuned.state import swap_record
from moetuned.state.swap_record import FILE_NAME

STATE = "/state"
PATH = "/data/swapfile"
NAME = f"swap file {PATH}"
WISHED = Config(tuning=Tuning(profile=Profile.MOE_OFFLOAD, swap=Swap(file=PATH, size="4GiB")))
NOTHING = Config(tuning=Tuning(profile=Profile.MOE_OFFLOAD))


class Keeping:
    """A keeper on a fake machine."""

    def __init__(self) -> None:
        self.machine, self.kernel, self.workers = FakeMachine(), usual_kernel(), HeldWorkers()
        self.host = FakeSwapHost(self.machine)
        self.changes = 0
        self.holds = True
        self.keeper = self.another()

    def another(self, kernel: FakeKernel | None = None) -> SwapKeeper:
        return SwapKeeper(
            kernel or self.kernel,
            STATE,
            self.workers,  # type: ignore[arg-type]
            self.host,
            holds=lambda: self.holds,
        )

    def apply(self, config: Config, *, by_hand: bool = False) -> None:
        self.keeper.apply(config, changed=self._changed, by_hand=by_hand)

    def _changed(self) -> None:
        self.changes += 1

    def finish(self) -> None:
        self.workers.finish("swap", really=True)

    @property
    def states(self) -> dict[str, str]:
        return {view.name: view.state for view in self.keeper.views}


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeping]:
    made = Keeping()
    monkeypatch.setattr(swap_record, "exists", lambda directory: f"{directory}/{FILE_NAME}" in made.machine.disk)
    with state_disk(made.machine, Fuse()):
        yield made


def test_without_a_wish_nothing_is_looked_at_or_done(keeping: Keeping) -> None:
    keeping.apply(NOTHING)
    assert not keeping.keeper.is_concerned(NOTHING)
    assert (keeping.keeper.views, keeping.keeper.check(), keeping.workers.jobs, keeping.host.calls) == ((), (), [], [])
    keeping.keeper.take_away()
    keeping.keeper.take_away_now()
    assert (keeping.workers.jobs, keeping.host.calls, keeping.keeper.idle) == ([], [], True)


def test_made_looked_at_and_taken_away(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    assert (keeping.states, keeping.keeper.idle, keeping.changes) == ({NAME: "planned"}, False, 0)
    assert keeping.keeper.check() == (), "not while it is being made"
    keeping.finish()
    assert (keeping.states, keeping.keeper.idle, keeping.changes) == ({NAME: "applied"}, True, 1)
    assert keeping.keeper.check() == ()
    keeping.keeper.take_away()
    assert (keeping.states, keeping.keeper.idle) == ({NAME: "planned"}, False)
    keeping.finish()
    assert (keeping.states, keeping.keeper.idle) == ({NAME: "restored"}, True)
    assert (keeping.machine.files, keeping.keeper.check()) == ({}, ())


def test_what_somebody_swapped_off_is_told_once(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    keeping.finish()
    next(iter(keeping.machine.files.values())).on = False
    assert [view.state for view in keeping.keeper.check()] == ["drifted"]
    assert keeping.keeper.check() == ()


def test_a_reload_while_it_works_is_done_afterwards_and_only_the_last_counts(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    keeping.apply(Config(tuning=Tuning(profile=Profile.MOE_OFFLOAD, swap=Swap(file=PATH, size="2GiB"))))
    keeping.apply(NOTHING)
    assert len(keeping.workers.jobs) == 1
    keeping.finish()
    assert not keeping.keeper.idle
    keeping.finish()
    assert (keeping.machine.files, keeping.keeper.idle, keeping.workers.jobs) == ({}, True, [])


def test_told_to_take_away_while_it_is_made(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    keeping.keeper.take_away()
    keeping.finish()
    if not keeping.keeper.idle:
        keeping.finish()
    assert (keeping.machine.files, keeping.keeper.idle) == ({}, True)


def test_the_next_daemon_takes_it_over_and_can_take_it_away_at_once(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    keeping.finish()
    keeping.keeper = keeping.another()
    keeping.apply(WISHED)
    assert keeping.states == {NAME: "applied"}
    keeping.finish()
    keeping.keeper.take_away_now()
    assert keeping.machine.files == {}


def test_without_the_directory_nothing_is_made_and_it_says_so(keeping: Keeping) -> None:
    keeping.holds = False
    keeping.apply(WISHED)
    assert [(view.state, view.detail) for view in keeping.keeper.views] == [("failed", LOCKED_OUT)]
    assert (keeping.workers.jobs, keeping.host.calls) == ([], [])


def test_a_lane_that_takes_no_more_and_work_that_breaks_are_told(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(keeping.workers, "submit", lambda *_: False)
        keeping.apply(WISHED)
    assert [(view.state, view.detail) for view in keeping.keeper.views] == [("failed", NO_LANE)]
    assert keeping.keeper.idle
    keeping.apply(WISHED)
    keeping.workers.finish("swap", RuntimeError("broken"))
    assert keeping.keeper.idle
    assert keeping.keeper.views[0].state == "failed"
    assert "broken" in keeping.keeper.views[0].detail


def test_two_compressions_one_before_the_other_are_warned_of(keeping: Keeping) -> None:
    keeping.kernel.files["/proc/swaps"] = Text("Filename\tType\tSize\tUsed\tPriority\n/dev/zram0 partition 4096 0 5\n")
    keeping.kernel.files["/sys/module/zswap/parameters/enabled"] = Text("Y\n")
    keeping.apply(WISHED)
    assert "zswap is on in front of /dev/zram0" in keeping.keeper.notes[0]


def test_what_was_taken_away_stays_shown_and_is_looked_at_again_once_it_is_asked_for(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    keeping.finish()
    keeping.keeper.take_away()
    keeping.finish()
    keeping.keeper.check()
    assert keeping.states == {NAME: "restored"}
    keeping.apply(WISHED)
    keeping.finish()
    next(iter(keeping.machine.files.values())).on = False
    assert [view.state for view in keeping.keeper.check()] == ["drifted"]


def test_what_is_wrong_with_the_swap_that_is_on_is_looked_at_again_when_it_has_changed(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    assert keeping.keeper.notes == ()
    keeping.kernel.files["/proc/swaps"] = Text("Filename\tType\tSize\tUsed\tPriority\n/dev/zram0 partition 4096 0 5\n")
    keeping.kernel.files["/sys/module/zswap/parameters/enabled"] = Text("Y\n")
    keeping.finish()
    assert "compressed twice" in keeping.keeper.notes[0]


def test_a_daemon_without_swap_of_its_own_does_not_load_what_makes_it() -> None:
    program = (
        "import sys; import moetuned.daemon.app; "
        "print([name for name in sys.modules if name.startswith(('moetuned.host.swap_', 'moetuned.state.swap_file'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_who_is_locked_out_touches_nothing_of_the_holders(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    keeping.finish()
    keeping.keeper, keeping.holds = keeping.another(), False
    keeping.apply(WISHED)
    next(iter(keeping.machine.files.values())).on = False
    calls, disk = list(keeping.host.calls), dict(keeping.machine.disk)
    assert keeping.keeper.check() == ()
    keeping.keeper.take_away()
    keeping.keeper.take_away(ending=True)
    keeping.keeper.take_away_now()
    keeping.keeper = keeping.another()
    keeping.keeper.take_away_now()
    assert (keeping.host.calls, keeping.machine.disk, keeping.workers.jobs) == (calls, disk, [])


def test_who_is_locked_out_calls_no_swap_somebodys(keeping: Keeping) -> None:
    """The holder is just making it: it is on, and not in the record yet."""
    number = keeping.machine.add_zram("moetuned")
    assert keeping.machine.zram is not None
    keeping.machine.zram[number].on, keeping.machine.zram[number].size_bytes = True, 1 << 30
    keeping.holds = False
    keeping.apply(Config(tuning=Tuning(profile=Profile.MOE_OFFLOAD, swap=Swap(zram="1GiB"))))
    assert [(view.state, view.detail) for view in keeping.keeper.views] == [("failed", LOCKED_OUT)]


def test_a_reload_that_removes_swap_is_not_lost_while_the_first_step_is_not_made_yet(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    assert not keeping.machine.disk, "nothing is recorded yet"
    assert keeping.keeper.is_concerned(NOTHING), "so the directory is not let go"
    keeping.apply(NOTHING)
    keeping.finish()
    keeping.finish()
    assert (keeping.machine.files, keeping.keeper.idle, keeping.workers.jobs) == ({}, True, [])


def test_what_was_asked_for_before_does_not_come_back(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    keeping.apply(NOTHING)
    keeping.apply(WISHED)
    keeping.finish()
    keeping.finish()
    assert (keeping.states, keeping.keeper.idle) == ({NAME: "applied"}, True)


def test_what_somebody_took_away_is_told_once_and_is_theirs_until_a_person_asks(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    keeping.finish()
    keeping.machine.files.clear()
    assert [view.state for view in keeping.keeper.check()] == ["drifted"]
    for _ in range(2):
        keeping.keeper = keeping.another()
        keeping.apply(WISHED)
        keeping.finish()
        assert (keeping.states, keeping.keeper.check()) == ({NAME: "yielded"}, ())
    keeping.apply(WISHED, by_hand=True)
    assert keeping.states == {NAME: "planned"}, "who asked waits for the end"
    keeping.finish()
    assert keeping.states == {NAME: "applied"}


def test_what_a_reload_finds_drifted_is_told_at_the_next_look(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    keeping.finish()
    keeping.machine.files.clear()
    keeping.apply(WISHED)
    keeping.finish()
    assert [view.state for view in keeping.keeper.check()] == ["drifted"]
    assert keeping.keeper.check() == ()


def test_one_that_is_off_is_not_shown_as_applied_before_the_work_is_done(keeping: Keeping) -> None:
    keeping.apply(WISHED)
    keeping.finish()
    next(iter(keeping.machine.files.values())).on = False
    keeping.keeper.check()
    keeping.apply(WISHED)
    assert keeping.states == {NAME: "yielded"}
    keeping.finish()
    keeping.apply(WISHED, by_hand=True)
    assert keeping.states == {NAME: "planned"}


def test_a_record_that_is_gone_is_said_and_nothing_is_done(keeping: Keeping, caplog: pytest.LogCaptureFixture) -> None:
    keeping.apply(WISHED)
    keeping.finish()
    kept = dict(keeping.machine.disk)
    keeping.machine.disk.clear()
    calls = list(keeping.host.calls)
    caplog.clear()
    keeping.apply(WISHED)
    for _ in range(2):
        keeping.keeper.check()
        assert [view.state for view in keeping.keeper.views] == ["failed"]
        assert [note.count(f"{STATE}/{FILE_NAME}") for note in keeping.keeper.notes] == [1]
    assert len(caplog.messages) == 1
    keeping.keeper.take_away(ending=True)
    keeping.keeper.take_away_now()
    assert (keeping.host.calls, keeping.workers.jobs, keeping.keeper.idle) == (calls, [], True)
    assert "tune rollback --alone" in caplog.messages[-1]
    assert len(caplog.messages) == 2
    keeping.machine.disk.update(kept)
    keeping.apply(WISHED)
    keeping.finish()
    assert keeping.states == {NAME: "applied"}


def test_what_stays_on_at_the_end_is_a_warning_once(keeping: Keeping, caplog: pytest.LogCaptureFixture) -> None:
    keeping.apply(WISHED)
    keeping.finish()
    next(iter(keeping.machine.files.values())).used_bytes = keeping.machine.available_bytes
    caplog.clear()
    keeping.keeper.take_away(ending=True)
    keeping.finish()
    keeping.keeper.take_away_now()
    (record,) = (each for each in caplog.records if each.levelname == "WARNING")
    assert "is kept on" in record.message
    assert "tune rollback --alone" in record.message
