from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.daemon.event_log import EventLog
from moetuned.schema.event import Event, EventName


def new(event_id: str = "") -> Event:
    return Event(event_id, EventName.THRASH_BEGIN, 1.0, 1.0, "a", "a thrashes")


def test_ids_are_given_and_grow():
    log = EventLog(1_800_000_000.0)
    ids = [log.add(new()).id for _ in range(3)]
    assert ids == sorted(set(ids))
    assert log.since(ids[0]) == log.since(None)[1:]
    assert log.since(ids[-1]) == []


def test_an_id_that_an_event_has_is_kept():
    log = EventLog(1.0)
    event_id = log.new_id()
    assert log.add(new(event_id)).id == event_id
    assert log.add(new()).id > event_id


def test_what_the_ring_forgets_is_still_counted():
    log = EventLog(1.0, capacity=2)
    for _ in range(5):
        log.add(new())
    assert (len(log.since(None)), log.counts) == (2, {"thrash_begin": 5})


def test_ids_of_a_later_start_are_others_and_sort_later():
    first, second = EventLog(1_800_000_000.0), EventLog(1_800_000_000.5)
    assert first.add(new()).id < second.add(new()).id


def test_an_id_from_before_a_restart_gives_all_that_is_kept():
    old, log = EventLog(1.0), EventLog(2.0)
    old_id = old.add(new()).id
    kept = [log.add(new()) for _ in range(2)]
    assert log.since(old_id) == kept
    assert log.since("rubbish") == kept
    assert log.since("") == kept


def test_the_oldest_goes_first():
    log = EventLog(1.0, capacity=3)
    ids = [log.add(new()).id for _ in range(5)]
    assert [event.id for event in log.since(None)] == ids[2:]
    assert [event.id for event in log.since(ids[0])] == ids[2:]


def test_last():
    log = EventLog(1.0)
    assert log.last(5) == ()
    events = [log.add(new()) for _ in range(3)]
    assert log.last(2) == tuple(events[1:])
    assert log.last(0) == ()
    assert log.last(9) == tuple(events)


@given(st.integers(1, 40), st.integers(1, 10), st.integers(0, 39))
def test_since_never_misses_and_never_repeats(count, capacity, asked):
    log = EventLog(5.0, capacity)
    ids = [log.add(new()).id for _ in range(count)]
    known = ids[min(asked, count - 1)]
    newer = [item for item in ids if item > known]
    assert [event.id for event in log.since(known)] == newer[-capacity:]


def at(wall: float) -> Event:
    return Event("", EventName.THRASH_BEGIN, wall, 1.0, "a", "a thrashes")


def test_since_a_time():
    log = EventLog(1.0)
    events = [log.add(at(wall)) for wall in (10.0, 20.0, 30.0)]
    assert log.since(20.0) == events[2:]
    assert log.since(5.0) == events
    assert log.since(99.0) == []


def test_whether_some_are_missing_is_known():
    log = EventLog(1.0, capacity=2)
    events = [log.add(at(wall)) for wall in (10.0, 20.0)]
    assert log.answer(None).complete
    events.append(log.add(at(30.0)))
    assert not log.answer(None).complete
    assert not log.answer(5.0).complete
    assert log.answer(10.0).complete, "the one that is gone was not after that"
    assert not log.answer(events[0].id).complete
    assert log.answer(events[1].id).complete
    assert log.answer(events[1].id).events == (events[2],)


def test_as_many_as_it_takes_may_not_have_been_all():
    earlier = [EventLog(1.0).add(at(wall)) for wall in (10.0, 20.0)]
    assert not EventLog(2.0, 2, earlier).answer(None).complete
    assert EventLog(2.0, 3, earlier).answer(None).complete
    assert EventLog(2.0, 3, earlier).since(None) == earlier
