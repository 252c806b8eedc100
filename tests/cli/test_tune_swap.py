"""Swap beside the settings: what plan, apply, verify and rollback do about it, on a fake machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.fake_swap import FakeMachine, FakeSwapHost, Fuse, state_disk

from moetuned.cli import tune_swap
from moetuned.cli.tune_options import Options
from moetuned.schema.config import Config, Profile, Tuning
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
