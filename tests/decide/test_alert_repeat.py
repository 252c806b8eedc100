from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import alert_repeat
from moetuned.decide.alert_repeat import Repeats, delivered, take, tick
from moetuned.schema.event import ENDS, Event, EventName, has_end

N = EventName
EVERY = 240.0


def event(name: EventName, backend: str | None = "glm", number: int = 1) -> Event:
    return Event(f"1-{number}", name, 1000.0, 10.0, backend, "it is so")


def taken(repeats: Repeats) -> list[EventName]:
    names = []
    while True:
        repeats, again = take(repeats)
        if again is None:
            return names
        names.append(again.name)


def test_what_goes_on_is_told_again_when_it_is_due_and_then_again() -> None:
    repeats = delivered(Repeats(), event(N.THRASH_BEGIN), 100.0, EVERY)
    assert taken(tick(repeats, {"glm"}, 339.0, EVERY)) == []
    repeats = tick(repeats, {"glm"}, 340.0, EVERY)
    repeats, again = take(repeats)
    assert again == event(N.THRASH_BEGIN)
    assert taken(tick(repeats, {"glm"}, 579.0, EVERY)) == []
    assert taken(tick(repeats, {"glm"}, 580.0, EVERY)) == [N.THRASH_BEGIN]


def test_an_end_ends_all_that_it_is_the_end_of_also_what_waits_to_be_told_again() -> None:
    repeats = Repeats()
    for name in (N.MEMORY_NEAR_LIMIT, N.RELIEF_EXHAUSTED, N.BACKEND_OOM_KILLED):
        repeats = delivered(repeats, event(name), 100.0, EVERY)
    repeats = tick(repeats, {"glm"}, 340.0, EVERY)
    assert taken(repeats) == [N.MEMORY_NEAR_LIMIT, N.RELIEF_EXHAUSTED, N.BACKEND_OOM_KILLED]
    repeats = delivered(repeats, event(N.MEMORY_RECOVERED), 341.0, EVERY)
    assert taken(repeats) == [N.BACKEND_OOM_KILLED]
    repeats = delivered(repeats, event(N.BACKEND_RECOVERED, "qwen"), 342.0, EVERY)
    assert taken(repeats) == [N.BACKEND_OOM_KILLED], "another one's end"
    assert delivered(repeats, event(N.BACKEND_RECOVERED), 343.0, EVERY) == Repeats()


def test_a_restart_that_failed_is_told_again_no_more() -> None:
    repeats = delivered(Repeats(), event(N.BACKEND_RESTARTING), 100.0, EVERY)
    assert delivered(repeats, event(N.BACKEND_NOT_RESTARTED), 110.0, EVERY) == repeats, "it is about an other one"
    over = msgspec.structs.replace(event(N.BACKEND_NOT_RESTARTED), ended=("1-1",))
    assert delivered(repeats, over, 110.0, EVERY) == Repeats()
    down = msgspec.structs.replace(event(N.BACKEND_DOWN), ended=("1-1",))
    assert delivered(repeats, down, 110.0, EVERY).going_on == (down,)


def test_of_the_kinds_of_an_event_the_last_goes_on() -> None:
    repeats = delivered(Repeats(), event(N.BACKEND_DOWN), 100.0, EVERY)
    repeats = delivered(repeats, event(N.BACKEND_CRASH_LOOP), 110.0, EVERY)
    assert [each.name for each in repeats.going_on] == [N.BACKEND_CRASH_LOOP]


def test_what_has_no_end_is_told_once() -> None:
    for name in N:
        if name in ENDS or not has_end(name):
            assert delivered(Repeats(), event(name), 100.0, EVERY) == Repeats()


def test_what_is_about_nobody_who_is_watched_is_told_no_more() -> None:
    repeats = delivered(Repeats(), event(N.THRASH_BEGIN), 100.0, EVERY)
    assert tick(repeats, {"qwen"}, 340.0, EVERY) == Repeats()


@given(st.lists(st.tuples(st.sampled_from(N), st.sampled_from(["glm", "qwen", None]), st.floats(0, 600))))
def test_only_what_has_not_ended_is_told_again(told: list[tuple[EventName, str | None, float]]) -> None:
    repeats, now, open_begins = Repeats(), 0.0, {}
    for number, (name, backend, wait) in enumerate(told):
        now += wait
        repeats = tick(repeats, {"glm", "qwen"}, now, EVERY)
        one = event(name, backend, number)
        repeats = delivered(repeats, one, now, EVERY)
        for begun in ENDS.get(name, ()):
            open_begins.pop((backend, begun), None)
        if has_end(name):
            open_begins[backend, alert_repeat.begun_by(name)[0]] = one
    assert set(repeats.going_on) == set(open_begins.values())
    assert set(repeats.waiting) <= set(repeats.going_on)
    assert (repeats.due_at is None) == (not repeats.going_on)
    assert repeats.due_at is None or repeats.due_at <= now + EVERY
