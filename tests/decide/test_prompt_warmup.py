"""Which prompt is next, and when none is: tables, and whole courses of events."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.prompt_warmup import (
    ENDED_GRACE_SECONDS,
    PromptEnd,
    PromptSettings,
    PromptSight,
    PromptStep,
    PromptWarmup,
    begin,
    others_busy,
    step,
    was_used,
)
from moetuned.schema.sample import BackendHttp, Slot
from moetuned.schema.verdict import MemoryState, Paging, Phase


def http(busy: int = 0, slots: int = 4, deferred: float | None = 0, **changes: object) -> BackendHttp:
    return BackendHttp(
        health="ok",
        slots=tuple(Slot(number, processing=number < busy) for number in range(slots)),
        sleeping=False,
        requests_processing=busy,
        requests_deferred=deferred,
        **changes,  # type: ignore[arg-type]
    )


def sight(answers: BackendHttp | None = None, at: float = 0.0, **changes: object) -> PromptSight:
    seen = PromptSight(Phase.IDLE, Paging.COLD, MemoryState.OK, http() if answers is None else answers, at)
    return msgspec.structs.replace(seen, **changes)


def running(now: float = 0.0, count: int = 3) -> PromptWarmup:
    stepped = step(begin(count, now), sight(at=now), now)
    assert stepped.send == 0
    return stepped.state


def test_all_prompts_one_after_the_other() -> None:
    state, now, sent = begin(3, 0.0), 0.0, []
    while state.outcome is None:
        stepped = step(state, sight(at=now), now, PromptEnd(20) if state.sent_at is not None else None)
        assert not stepped.cancel
        if stepped.send is not None:
            sent.append(stepped.send)
        state, now = stepped.state, now + 1
    assert sent == [0, 1, 2]
    assert state.outcome == "3 of 3 prompts, 60 tokens; all prompts were sent"
    over = step(state, sight(at=now), now)
    assert (over.state, over.send, over.cancel) == (state, None, False)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"busy": "its model is being warmed"}, "its model is being warmed"),
        ({"phase": Phase.DECODE}, "not known to be idle (its phase is decode)"),
        ({"phase": Phase.UNKNOWN}, "not known to be idle"),
        ({"memory": MemoryState.UNKNOWN}, "how near memory is to its limit is unknown"),
        ({"http": None}, "whether somebody else asks it something is unknown"),
        ({"http": BackendHttp(health="busy")}, "whether somebody else asks it something is unknown"),
        ({"http": http(slots=1, deferred=None)}, "with one slot and without --metrics"),
        ({"http": BackendHttp(slots_asked=False)}, "is unknown"),
    ],
)
def test_what_it_waits_for(changes: dict[str, object], why: str) -> None:
    stepped = step(begin(3, 0.0), sight(**changes), 1.0)
    assert (stepped.send, stepped.cancel, stepped.state) == (None, False, begin(3, 0.0))
    assert stepped.detail.startswith("waits: ")
    assert why in stepped.detail
    late = step(begin(3, 0.0), sight(**changes), 600.0)
    assert late.state.outcome is not None
    assert "not begun: for 600 s there was no chance" in late.state.outcome
    assert why in late.state.outcome


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"phase": Phase.LOADING}, "not ready any more"),
        ({"phase": Phase.ABSENT}, "not ready any more"),
        ({"memory": MemoryState.NEAR_LIMIT}, "memory is near its limit"),
        ({"memory": MemoryState.CRITICAL}, "memory is near its limit"),
        ({"paging": Paging.THRASHING}, "thrashing"),
        ({"http": http(busy=2)}, "somebody else"),
        ({"http": http(busy=1, deferred=1)}, "somebody else"),
        ({"http": http(slots=1, busy=1, deferred=1)}, "somebody else"),
        ({"http": msgspec.structs.replace(http(), sleeping=True)}, "sleeps"),
    ],
)
def test_what_ends_it_for_good(changes: dict[str, object], why: str) -> None:
    fresh = step(begin(3, 0.0), sight(**changes), 1.0)
    assert (fresh.send, fresh.cancel) == (None, False)
    during = step(running(), sight(**changes), 1.0)
    assert (during.send, during.cancel) == (None, True)
    for stepped in (fresh, during):
        assert stepped.state.outcome is not None
        assert why in stepped.state.outcome
        assert stepped.state.sent_at is None
        assert step(stepped.state, sight(), 2.0).send is None


def test_ours_is_not_somebody_else() -> None:
    stepped = step(running(), sight(http(busy=1), phase=Phase.DECODE), 1.0)
    assert (stepped.send, stepped.cancel, stepped.state.outcome) == (None, False, None)


def test_what_is_unknown_while_it_runs_does_not_cancel_it() -> None:
    for answers in (BackendHttp(health="busy"), http(slots=1, deferred=None, busy=1)):
        assert not step(running(), sight(answers, phase=Phase.UNKNOWN), 1.0).cancel


def test_a_slot_that_is_busy_just_after_ours_ended_may_be_ours() -> None:
    state = running()
    ended = step(state, sight(http(busy=1), at=0.9), 1.0, PromptEnd(20))
    assert ended.detail.startswith("waits: ")
    assert ended.state.outcome is None
    later = step(ended.state, sight(http(busy=1), at=1.0 + ENDED_GRACE_SECONDS), 3.0)
    assert later.state.outcome is not None
    assert "somebody else" in later.state.outcome
    assert step(ended.state, sight(http(), at=1.1), 2.0).send == 1


def test_one_that_was_asked_already_is_left_alone() -> None:
    used = (
        msgspec.structs.replace(http(), prompt_tokens_total=5.0),
        msgspec.structs.replace(http(), tokens_predicted_total=1.0),
        msgspec.structs.replace(http(), slots=(Slot(0, processing=False, task_id=0),)),
    )
    for answers in used:
        assert was_used(answers)
        stepped = step(begin(3, 0.0), sight(answers), 1.0)
        assert stepped.state.outcome == "0 of 3 prompts, 0 tokens; not begun: somebody has asked it something already"
        # What ours left there does not count.
        assert step(running(), sight(answers), 1.0, PromptEnd(5)).send == 1
    assert not was_used(http())
    assert not was_used(None)


def test_a_slow_prompt_is_cancelled_and_two_in_a_row_end_it() -> None:
    settings = PromptSettings(one_seconds=5)
    late = step(running(), sight(), 5.0, settings=settings)
    assert (late.send, late.cancel, late.state.outcome) == (None, True, None)
    second = step(late.state, sight(at=10.0), 10.0, settings=settings)
    assert second.send == 1
    over = step(second.state, sight(), 15.0, settings=settings)
    assert over.cancel
    assert over.state.outcome == "0 of 3 prompts, 0 tokens; stopped: a prompt took longer than 5 s"


def test_two_failures_in_a_row_end_it_but_not_two_apart() -> None:
    state, now = begin(9, 0.0), 0.0
    for error in ("a", None, "b", None):
        state = step(step(state, sight(at=now), now).state, sight(at=now), now + 1, PromptEnd(error=error)).state
        # The step that takes the end sends the next one at once.
        assert state.outcome is None
        state, now = msgspec.structs.replace(state, sent_at=None), now + 10
    state = step(state, sight(at=now), now).state
    state = step(state, sight(at=now), now + 1, PromptEnd(error="c")).state
    over = step(state, sight(at=now), now + 2, PromptEnd(error="the backend refused a prompt: 401"))
    assert over.state.outcome is not None
    assert over.state.outcome.endswith("stopped: the backend refused a prompt: 401")


def test_its_time_and_its_tokens_are_bounded() -> None:
    state = running(count=100)
    over = step(state, sight(), 10.0, settings=PromptSettings(total_seconds=10, one_seconds=60))
    assert over.cancel
    assert over.state.outcome == "0 of 100 prompts, 0 tokens; its 10 s are over"
    spent = step(state, sight(), 1.0, PromptEnd(500), PromptSettings(total_tokens=500))
    assert spent.state.outcome == "1 of 100 prompts, 500 tokens; its 500 tokens are used up"


@pytest.mark.parametrize(
    ("answers", "least", "most", "expected"),
    [
        (None, 0, 0, None),
        (http(), 0, 0, False),
        (http(1), 0, 0, True),
        (http(1), 0, 1, None),
        (http(1), 1, 1, False),
        (http(2), 1, 1, True),
        (http(0), 1, 1, False),
        (http(0, deferred=1), 0, 0, True),
        (http(0, deferred=None), 0, 0, False),
        (http(0, slots=1, deferred=None), 0, 0, None),
        (http(1, slots=1, deferred=None), 0, 0, True),
        (http(0, slots=1), 0, 0, False),
        (BackendHttp(slots=(Slot(0), Slot(1, processing=False))), 0, 0, None),
        (BackendHttp(slots=(Slot(0), Slot(1, processing=True))), 0, 0, True),
        (BackendHttp(requests_processing=0, requests_deferred=0), 0, 0, False),
        (BackendHttp(requests_processing=1, requests_deferred=0), 0, 0, True),
        (BackendHttp(requests_processing=1, requests_deferred=0), 0, 1, None),
        (BackendHttp(requests_processing=0), 0, 0, None),
        (BackendHttp(), 0, 0, None),
        (BackendHttp(slots_asked=False, sleeping=False), 0, 0, False),
        (BackendHttp(slots_asked=False, sleeping=None), 0, 0, None),
        (BackendHttp(slots_asked=False, sleeping=True), 0, 0, None),
    ],
)
def test_who_is_busy(answers: BackendHttp | None, least: int, most: int, expected: bool | None) -> None:
    assert others_busy(answers, ours_least=least, ours_most=most) is expected


HTTP = st.none() | st.builds(
    http, busy=st.integers(0, 2), slots=st.integers(1, 3), deferred=st.sampled_from([None, 0, 1])
) | st.builds(BackendHttp, slots_asked=st.just(False), sleeping=st.sampled_from([None, True, False]))  # fmt: skip
SIGHTS = st.builds(
    PromptSight,
    phase=st.sampled_from(Phase),
    paging=st.sampled_from(Paging),
    memory=st.sampled_from(MemoryState),
    http=HTTP,
    http_at=st.none() | st.floats(0, 100),
    busy=st.none() | st.just("busy"),
) | st.just(sight())  # fmt: skip
ENDS = st.none() | st.builds(PromptEnd, tokens=st.integers(0, 100), error=st.none() | st.just("x"))


def check(before: PromptWarmup, seen: PromptSight, stepped: PromptStep) -> None:
    state = stepped.state
    assert (state.sent_at is not None) == (stepped.send is not None or (before.sent_at is not None and not stepped.cancel and state.next_index == before.next_index and state.outcome is None))  # fmt: skip
    if stepped.cancel:
        assert before.sent_at is not None
        assert stepped.send is None
    if state.outcome is not None:
        assert state.sent_at is None
        assert stepped.send is None
    if stepped.send is not None:
        assert stepped.send == state.next_index < state.count
        assert (seen.phase, seen.memory, seen.busy) == (Phase.IDLE, MemoryState.OK, None)
        assert seen.paging is not Paging.THRASHING
        assert seen.http is not None
        assert others_busy(seen.http, ours_least=0, ours_most=1) is False
    if stepped.detail.startswith("waits"):
        assert stepped.send is None


@given(
    count=st.integers(0, 5),
    course=st.lists(st.tuples(SIGHTS, ENDS, st.floats(0, 30)), max_size=40),
)
def test_no_course_of_events_sends_where_it_must_not(
    count: int, course: list[tuple[PromptSight, PromptEnd | None, float]]
) -> None:
    state, now, sent = begin(count, 0.0), 0.0, []
    for seen, ended, pause in course:
        now += pause
        stepped = step(state, seen, now, ended)
        check(state, seen, stepped)
        if stepped.send is not None:
            sent.append(stepped.send)
        if state.outcome is not None:
            assert stepped.state == state
        state = stepped.state
    assert sent == sorted(set(sent))
    assert state.sent <= len(sent)
    if state.began_at is not None and state.outcome is None:
        assert state.sent_at is None or state.sent_at - state.began_at < PromptSettings().total_seconds
