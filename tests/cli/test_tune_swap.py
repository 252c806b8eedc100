"""Swap beside the settings: what plan, apply, verify and rollback do about it, on a fake machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.fake_swap import FakeMachine, FakeSwapHost, Fuse, state_disk

from moetuned.cli import tune_swap
from moetuned.cli.tune_options import Options
from moetuned.schema.config import Config, Profile, Tuning
from moetuned.schema.snapshot import TunableView, TuneAnswer
from moetuned.schema.swap import Swap, SwapStepKind
from moetuned.state import swap
from moetuned.state.swap_record import FILE_NAME

HERE = Options(as_json=False, root="/", journal="/state/undo.jsonl")
WISHED = Config(tuning=Tuning(profile=Profile.MOE_OFFLOAD, swap=Swap(file="/data/swapfile", size="4GiB")))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    made = FakeMachine()
    host = FakeSwapHost(made)
    monkeypatch.setattr(tune_swap, "RealSwapHost", lambda _directory: host)
    monkeypatch.setattr(swap, "exists", lambda directory: f"{directory}/{FILE_NAME}" in made.disk)
    with state_disk(made, Fuse()):
        yield made


def test_planned_made_checked_and_taken_away(machine: FakeMachine) -> None:
    (step,) = tune_swap.planned_swap(HERE, WISHED)
    assert step.kind is SwapStepKind.MAKE
    assert [view.state for view in tune_swap.verify_swap(HERE, (step,))] == ["planned"]
    assert not tune_swap.is_recorded(HERE)
    assert [view.state for view in tune_swap.apply_swap(HERE, WISHED)] == ["applied"]
    assert tune_swap.is_recorded(HERE)
    kept = tune_swap.planned_swap(HERE, WISHED)
    assert [view.state for view in tune_swap.verify_swap(HERE, kept)] == ["applied"]
    assert [view.state for view in tune_swap.rollback_swap(HERE, None)] == ["restored"]
    assert machine.files == {}


def test_what_nobody_wishes_for_any_more_is_said_and_taken_away(machine: FakeMachine) -> None:
    tune_swap.apply_swap(HERE, WISHED)
    assert "no longer wanted" in tune_swap.verify_swap(HERE, ())[0].detail
    assert [view.state for view in tune_swap.apply_swap(HERE, Config())] == ["restored"]
    assert machine.files == {}


def test_without_a_wish_nothing_happens(machine: FakeMachine) -> None:
    assert tune_swap.planned_swap(HERE, Config()) == ()
    assert tune_swap.apply_swap(HERE, Config()) == ()
    assert tune_swap.verify_swap(HERE, ()) == ()
    assert tune_swap.rollback_swap(HERE, None) == ()


def test_a_tree_of_files_has_no_swap(machine: FakeMachine) -> None:
    elsewhere = Options(as_json=False, root="/tree", journal="/state/undo.jsonl")
    tune_swap.apply_swap(HERE, WISHED)
    assert tune_swap.planned_swap(elsewhere, WISHED) == ()
    assert tune_swap.apply_swap(elsewhere, WISHED) == ()
    assert tune_swap.rollback_swap(elsewhere, None) == ()
    assert tune_swap.warnings(elsewhere) == ()
    assert len(machine.files) == 1


def test_apply_is_by_hand(machine: FakeMachine) -> None:
    tune_swap.apply_swap(HERE, WISHED)
    next(iter(machine.files.values())).on = False
    assert [view.state for view in tune_swap.apply_swap(HERE, WISHED)] == ["drifted"]
    assert [view.state for view in tune_swap.apply_swap(HERE, WISHED)] == ["applied"]


SETTING = TunableView("vm.swappiness", "applied")


class Daemon:
    """Its status as it comes along."""

    def __init__(self, *states: str) -> None:
        self.states = iter(states)

    def status(self) -> Any:
        return SimpleNamespace(tuning=(SETTING, TunableView("swap zram", next(self.states))))


@pytest.mark.parametrize("end", ["applied", "restored", "failed"])
def test_a_daemon_is_followed_to_the_end_of_its_swap(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(tune_swap.time, "sleep", lambda _: None)
    answer = TuneAnswer((SETTING, TunableView("swap zram", "planned")), ("a note",))
    followed = tune_swap.follow(Daemon("planned", "planned", end), answer)  # type: ignore[arg-type]
    assert [(view.name, view.state) for view in followed.tuning] == [("vm.swappiness", "applied"), ("swap zram", end)]
    assert followed.notes == ("a note",)


def test_a_daemon_that_is_at_nothing_is_not_asked_again() -> None:
    answer = TuneAnswer((TunableView("vm.swappiness", "planned"), TunableView("swap zram", "failed")))
    assert tune_swap.follow(Daemon(), answer) is answer  # type: ignore[arg-type]


def test_a_daemon_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(0.0, 10.0)
    monkeypatch.setattr(tune_swap, "time", SimpleNamespace(sleep=lambda _: None, monotonic=lambda: next(now)))
    answer = TuneAnswer((TunableView("swap zram", "planned"),))
    followed = tune_swap.follow(Daemon(*["planned"] * 99), answer)  # type: ignore[arg-type]
    assert [view.state for view in followed.tuning if tune_swap.is_to_come(view)] == ["planned"]
