"""What waits for a sink: in order, bounded, each until it arrives, is refused or gives way."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import alert_queue
from moetuned.decide.alert_gate import Told
from moetuned.decide.alert_queue import (
    MOST_AGE_SECONDS,
    MOST_BYTES,
    MOST_DELAY_SECONDS,
    MOST_WAITING,
    Outbox,
    Outcome,
    begin,
    delay_seconds,
    put,
    settle,
)
from moetuned.schema.event import Event, EventName


def told(
    number: int, name: EventName = EventName.TUNING_DRIFTED, *, held_back: int = 0, size: int = 10, again: bool = False
) -> Told:
    return Told(Event(str(number), name, 0.0, 0.0, "glm", "m" * size), held_back, again)


def filled(*each: Told) -> Outbox:
    outbox = Outbox()
    for one in each:
        outbox, _ = put(outbox, one, 0.0, sending=False)
    return outbox


def ids(outbox: Outbox) -> list[str]:
    return [waiting.told.event.id for waiting in outbox.waiting]


def test_in_order_until_each_is_delivered() -> None:
    outbox = filled(told(1), told(2))
    outbox, event = begin(outbox)
    assert event.id == "1"
    outbox, given_up = settle(outbox, Outcome.DELIVERED, 0.0)
    assert (ids(outbox), given_up) == (["2"], None)


def test_what_is_to_be_tried_again_stays_the_first() -> None:
    outbox, _ = begin(filled(told(1), told(2)))
    outbox, given_up = settle(outbox, Outcome.AGAIN, MOST_AGE_SECONDS)
    assert (ids(outbox), outbox.tries, given_up) == (["1", "2"], 1, None)
    outbox, _ = settle(begin(outbox)[0], Outcome.DELIVERED, 0.0)
    assert (ids(outbox), outbox.tries) == (["2"], 0)


def test_what_is_refused_holds_nothing_up() -> None:
    outbox, given_up = settle(begin(filled(told(1), told(2)))[0], Outcome.REFUSED, 0.0)
    assert given_up == told(1)
    assert (ids(outbox), outbox.refused_total, outbox.dropped) == (["2"], 1, 0)


def test_what_cannot_be_delivered_for_days_gives_way() -> None:
    outbox, given_up = settle(begin(filled(told(1), told(2)))[0], Outcome.AGAIN, MOST_AGE_SECONDS + 1)
    assert given_up == told(1)
    assert (ids(outbox), outbox.dropped, outbox.tries) == (["2"], 1, 0)
    assert begin(outbox)[1].message.endswith(
        "(1 alert was dropped, as they could not be delivered; see moetunectl events)"
    )


def test_the_oldest_gives_way_where_too_many_wait() -> None:
    outbox = filled(*(told(number) for number in range(MOST_WAITING)))
    outbox, gone = put(outbox, told(999), 0.0, sending=False)
    assert gone == (told(0),)
    assert ids(outbox)[0] == "1"
    assert ids(outbox)[-1] == "999"
    assert (outbox.dropped, outbox.dropped_total) == (1, 1)


def test_the_one_on_its_way_stays() -> None:
    outbox, _ = begin(filled(*(told(number) for number in range(MOST_WAITING))))
    outbox, gone = put(outbox, told(999), 0.0, sending=True)
    assert gone == (told(1),)
    assert ids(outbox)[:2] == ["0", "2"]


def test_too_many_bytes_are_too_many() -> None:
    half = MOST_BYTES // 2
    outbox, gone = put(filled(told(1, size=half), told(2, size=10)), told(3, size=half), 0.0, sending=False)
    assert gone == (told(1, size=half),)
    assert ids(outbox) == ["2", "3"]


def test_with_a_begin_that_gives_way_goes_its_end() -> None:
    first = told(1, EventName.THRASH_BEGIN), told(2, EventName.THRASH_END), told(3, EventName.THRASH_BEGIN)
    outbox = filled(*first, *(told(number) for number in range(4, MOST_WAITING + 1)))
    outbox, gone = put(outbox, told(999), 0.0, sending=False)
    assert gone == first[:2]
    assert ids(outbox)[0] == "3"
    assert outbox.dropped == 2


def test_the_end_of_what_was_told_before_stays() -> None:
    first = told(1, EventName.BACKEND_CRASH_LOOP, again=True), told(2, EventName.BACKEND_RECOVERED)
    outbox = filled(*first, *(told(number) for number in range(3, MOST_WAITING + 1)))
    outbox, gone = put(outbox, told(999), 0.0, sending=False)
    assert gone == first[:1]
    assert ids(outbox)[0] == "2"


def test_what_never_went_is_told_with_the_next_that_arrives() -> None:
    outbox = msgspec.structs.replace(filled(told(1, held_back=3), told(2)), dropped=2)
    outbox, event = begin(outbox)
    assert event.message == (
        "m"
        * 10
        + " (3 alerts were held back before this one, in quiet hours or by the rate limit; 2 alerts were dropped, as they could "
        "not be delivered; see moetunectl events)"
    )
    again, _ = settle(outbox, Outcome.AGAIN, 0.0)
    assert begin(again)[1] == event, "as long as it has not arrived"
    outbox = msgspec.structs.replace(outbox, dropped=5)
    outbox, _ = settle(outbox, Outcome.DELIVERED, 0.0)
    assert outbox.dropped == 3, "what was dropped meanwhile was not told"


@pytest.mark.parametrize(
    ("tries", "chance", "asked", "seconds"),
    [(1, 1.0, None, 2.0), (1, 0.0, None, 1.0), (2, 1.0, None, 4.0), (3, 0.5, None, 6.0), (99, 1.0, None, 300.0), (1, 0.0, 77.0, 77.0)],
)  # fmt: skip
def test_delays(tries: int, chance: float, asked: float | None, seconds: float) -> None:
    assert delay_seconds(tries, chance, asked) == seconds


@given(st.integers(0, 10**6), st.floats(0, 1), st.none() | st.floats(0, 3600))
def test_no_delay_is_longer_than_it_may_be(tries: int, chance: float, asked: float | None) -> None:
    assert 1.0 <= delay_seconds(tries, chance, asked) <= max(MOST_DELAY_SECONDS, asked or 0.0)


@given(st.data())
def test_each_arrives_in_order_or_is_counted(data: st.DataObject) -> None:
    """Whatever the other side does, and however much comes in meanwhile."""
    most = data.draw(st.integers(1, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alert_queue, "MOST_WAITING", most)
        outbox, sending, number, now = Outbox(), False, 0, 0.0
        arrived: list[int] = []
        refused = 0
        for step in data.draw(
            st.lists(st.sampled_from(["event", "send", "delivered", "again", "refused", "days"]), max_size=60)
        ):
            if step == "event":
                outbox, _ = put(outbox, told(number), now, sending=sending)
                number += 1
            elif step == "days":
                now += MOST_AGE_SECONDS + 1
            elif step == "send" and not sending and outbox.waiting:
                outbox, on_its_way = begin(outbox)
                sending = True
            elif step in ("delivered", "again", "refused") and sending:
                outbox, _ = settle(outbox, Outcome(step), now)
                sending = False
                if step == "delivered":
                    arrived.append(int(on_its_way.id))
                refused += step == "refused"
            assert len(outbox.waiting) <= max(most, 1)
            assert msgspec.json.decode(msgspec.json.encode(outbox), type=Outbox) == outbox
        assert arrived == sorted(set(arrived))
        assert len(arrived) + refused + outbox.dropped_total + len(outbox.waiting) == number
        assert outbox.refused_total == refused
