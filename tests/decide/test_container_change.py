from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moetuned.decide import container_change as cc
from moetuned.schema.container import ContainerChange, ContainerFacts, ContainerRecord

NAMES = cc.names_for("llama")
CHANGE = ContainerChange("new", ("image",), {}, "old", old_policy="always", old_ran=True, committed=True)
replace = msgspec.structs.replace


def old(name: str = "llama", status: str = "running", policy: str = "always") -> ContainerFacts:
    return ContainerFacts("old", name, status, policy=policy, token="before")


def new(name: str = NAMES.new, status: str = "created") -> ContainerFacts:
    return ContainerFacts("next", name, status, token="new")


OTHER = ContainerFacts("other", "llama", "running")


@pytest.mark.parametrize(
    ("seen", "own", "step"),
    [
        ([old()], False, cc.Create()),
        ([old(), new()], False, cc.Hold("old", "no")),
        ([old(), new()], True, cc.Stop("old")),
        ([old(policy="no"), new()], False, cc.Stop("old")),
        ([old(status="exited", policy="no"), new()], False, cc.Rename("old", "llama-before-moetuned")),
        ([old(status="exited"), new()], True, cc.Rename("old", "llama-moetuned-old")),
        ([old(NAMES.kept, "exited", "no"), new()], False, cc.Rename("next", "llama")),
        ([old(NAMES.kept, "exited", "no"), new("llama")], False, cc.Start("next")),
        ([old(NAMES.kept, "exited", "no"), new("llama", "running")], False, None),
        ([old(NAMES.kept, "exited", "no"), new("llama", "exited")], False, None),
        ([old(NAMES.own_old, "exited"), new("llama", "running")], True, cc.Remove("old")),
        ([new("llama", "running")], True, None),
        ([old(NAMES.own_old, "running"), new("llama", "running")], True, cc.Stop("old")),
    ],
)
def test_on(seen: list[ContainerFacts], own: bool, step: cc.Step | None) -> None:
    assert cc.next_step(replace(CHANGE, old_own=own), NAMES, seen) == step


@pytest.mark.parametrize(
    ("seen", "own", "step"),
    [
        ([old(NAMES.kept, "exited", "no"), new("llama", "running")], False, cc.Stop("next")),
        ([old(NAMES.kept, "exited", "no"), new("llama")], False, cc.Remove("next")),
        ([old(NAMES.kept, "exited", "no")], False, cc.Rename("old", "llama")),
        ([old("llama", "exited", "no")], False, cc.Hold("old", "always")),
        ([old("llama", "exited")], False, cc.Start("old")),
        ([old("llama", "exited", "no")], True, cc.Start("old")),
        ([old()], False, None),
        ([], False, None),
        ([OTHER, old(NAMES.kept, "exited", "no")], False, None),
        ([OTHER, old(NAMES.own_old, "exited", "no")], True, cc.Remove("old")),
    ],
)
def test_back(seen: list[ContainerFacts], own: bool, step: cc.Step | None) -> None:
    assert cc.next_step(replace(CHANGE, old_own=own, undoing=True), NAMES, seen) == step


def test_one_that_did_not_run_is_not_started_by_going_back() -> None:
    assert cc.next_step(replace(CHANGE, undoing=True, old_ran=False), NAMES, [old(status="exited")]) is None


def test_the_new_one_waits_for_a_name_that_somebody_else_took() -> None:
    with pytest.raises(cc.Blocked, match="a container llama is in the way"):
        cc.next_step(CHANGE, NAMES, [OTHER, new()])
    with pytest.raises(cc.Blocked, match="llama-moetuned-next is in the way"):
        cc.next_step(CHANGE, NAMES, [old(), replace(OTHER, name=NAMES.new)])


def test_a_new_one_of_a_change_that_was_taken_back_is_cleared_away_if_it_never_ran() -> None:
    stray = replace(new(), token="earlier")
    change = replace(CHANGE, strays=("earlier",))
    assert cc.next_step(change, NAMES, [old(), stray]) == cc.Remove("next")
    with pytest.raises(cc.Blocked):
        cc.next_step(change, NAMES, [old(), replace(stray, status="running")])
    record = cc.taken_back(ContainerRecord("t"), replace(CHANGE, token="earlier"))
    assert record == ContainerRecord("t", strays=("earlier",))
    assert cc.begin(record, NAMES, [old(), stray], "new", ("image",), {}).strays == ("earlier",)


def test_few_changes_that_were_taken_back_are_remembered_also_by_those_that_were_not() -> None:
    record = ContainerRecord()
    for number in range(9):
        record = cc.taken_back(record, replace(CHANGE, token=f"t{number}"))
    assert record.strays == ("t5", "t6", "t7", "t8")
    assert cc.done(record, CHANGE) == ContainerRecord("new", {}, record.strays)


def test_an_interrupted_change_is_taken_back_until_the_old_one_was_touched() -> None:
    assert cc.take_up(replace(CHANGE, committed=False)).undoing
    assert cc.take_up(CHANGE) == CHANGE
    first = replace(CHANGE, committed=False, old_id=None)
    assert cc.take_up(first) == first


STATUSES = st.sampled_from(["created", "running", "exited", "restarting", "paused", "removing"])
PLACES = st.sampled_from([NAMES.main, NAMES.new, NAMES.own_old, NAMES.kept])


@example(True, False, (NAMES.main, "created"), (NAMES.own_old, "created"), "no")  # somebody renamed the new one
@given(
    st.booleans(), st.booleans(), st.none() | st.tuples(PLACES, STATUSES), st.none() | st.tuples(PLACES, STATUSES), st.sampled_from(["no", "always"])
)  # fmt: skip
def test_no_state_asks_for_what_would_run_two_or_lose_the_users(own, undoing, older, newer, policy) -> None:
    seen = [*([old(*older, policy)] if older else []), *([new(*newer)] if newer else [])]
    if len({one.name for one in seen}) < len(seen):
        return
    try:
        step = cc.next_step(replace(CHANGE, old_own=own, undoing=undoing), NAMES, seen)
    except cc.Blocked:
        return
    if isinstance(step, cc.Start):
        assert not any(cc.is_active(one) for one in seen if one.id != step.id)
    if isinstance(step, cc.Remove):
        assert step.id == "next" or own
        assert not any(cc.is_active(one) for one in seen if one.id == step.id)
    if isinstance(step, cc.Rename):
        assert step.to not in [one.name for one in seen]


def test_undo_commands_read_as_they_are_typed() -> None:
    assert cc.undo_commands("podman", NAMES, "no") == (
        "podman rm -f llama", "podman rename llama-before-moetuned llama", "podman start llama",
    )  # fmt: skip
    assert "docker update --restart=always llama" in cc.undo_commands("docker", NAMES, "always")


def test_names_differ() -> None:
    assert all(a != b for a, b in itertools.combinations((NAMES.main, NAMES.new, NAMES.own_old, NAMES.kept), 2))
