"""Saying: kept, logged, given to the alert sinks."""

from __future__ import annotations

import logging

import pytest
from daemon_fakes import FakeClock, no_alerts

from moetuned.daemon.alerting import Alerting
from moetuned.daemon.announcer import Announcer
from moetuned.daemon.event_log import EventLog
from moetuned.schema.alert_view import AlertTestAnswer
from moetuned.schema.event import Event, EventName


@pytest.fixture
def events() -> EventLog:
    return EventLog(1.0)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    heard: list[Event] = []
    monkeypatch.setattr(Alerting, "hear", lambda _self, event: heard.append(event))
    return heard


@pytest.fixture
def announcer(events: EventLog) -> Announcer:
    return Announcer(events, no_alerts(), FakeClock())


def test_the_backends_name_is_in_every_message(announcer: Announcer, events: EventLog) -> None:
    announcer.say(EventName.THRASH_BEGIN, "glm", "It thrashes.")
    announcer.say(EventName.BACKEND_DOWN, "glm", "glm exited with code 1")
    announcer.say(EventName.TUNING_DRIFTED, None, "vm.dirty_ratio: changed")
    assert [event.message for event in events.since(None)] == [
        "glm: It thrashes.", "glm exited with code 1", "vm.dirty_ratio: changed",
    ]  # fmt: skip
    assert events.since(None)[0].backend == "glm"


def test_the_sinks_hear_what_is_kept(announcer: Announcer, events: EventLog, heard: list[Event]) -> None:
    announcer.say(EventName.THRASH_BEGIN, "glm", "It thrashes.")
    assert heard == events.since(None)
    assert heard[0].id


def test_a_test_is_neither_kept_nor_heard_by_whom_it_is_not_for(
    announcer: Announcer, events: EventLog, heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[Event, str | None]] = []
    monkeypatch.setattr(Alerting, "test", lambda _self, event, name: tried.append((event, name)) or ("phone",))
    status, answer = announcer.answer_test("phone")
    assert (status, answer) == (202, AlertTestAnswer(tried[0][0].id, ("phone",)))
    assert (tried[0][0].name, tried[0][1]) == (EventName.TEST, "phone")
    assert events.since(None) == heard == []


def test_a_sink_that_is_not_there_is_told(announcer: Announcer) -> None:
    status, answer = announcer.answer_test("phone")
    assert (status, answer) == (404, {"error": "there is no alert sink 'phone'; there are: none"})
    assert announcer.answer_test(None)[0] == 202


def test_the_log_says_it_as_loud_as_it_is_bad(announcer: Announcer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        announcer.say(EventName.THRASH_BEGIN, "glm", "It thrashes.")
        announcer.say(EventName.BACKEND_HUNG, "glm", "It hangs.")
        announcer.say(EventName.THRASH_END, "glm", "It is over.")
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "INFO"]


def test_an_end_names_what_it_ends(announcer: Announcer, events: EventLog) -> None:
    announcer.say(EventName.MEMORY_NEAR_LIMIT, "glm", "near")
    announcer.say(EventName.MEMORY_NEAR_LIMIT, "qwen", "near")
    announcer.say(EventName.RELIEF_EXHAUSTED, "glm", "nothing left")
    announcer.say(EventName.BACKEND_OOM_KILLED, "glm", "gone")
    announcer.say(EventName.MEMORY_RECOVERED, "glm", "well")
    announcer.say(EventName.MEMORY_RECOVERED, "glm", "well")
    announcer.say(EventName.BACKEND_RECOVERED, "glm", "back")
    near, other, exhausted, killed, well, again, back = events.since(None)
    assert well.ended == (near.id, exhausted.id)
    assert again.ended == ()
    assert back.ended == (killed.id,)
    assert [each.ended for each in (near, other, exhausted, killed)] == [()] * 4


def test_what_an_earlier_daemon_told_of_is_ended_too(events: EventLog) -> None:
    announcer = Announcer(events, no_alerts(), FakeClock())
    for name in (EventName.THRASH_BEGIN, EventName.THRASH_END, EventName.THRASH_BEGIN):
        announcer.say(name, "glm", "x")
    later = EventLog(2.0, earlier=events.since(None))
    Announcer(later, no_alerts(), FakeClock()).say(EventName.THRASH_END, "glm", "It is over.")
    assert later.since(None)[-1].ended == (events.since(None)[2].id,)


def test_what_was_told_of_a_backend_that_is_watched_anew_is_left_open(announcer: Announcer) -> None:
    for backend in ("glm", "other"):
        announcer.say(EventName.BACKEND_MODEL_MISSING, backend, "x")
    announcer.say(EventName.MEMORY_NEAR_LIMIT, "glm", "x")
    announcer.say(EventName.MEMORY_RECOVERED, "glm", "x")
    assert announcer.left_open == set()
    announcer.leave_open("glm")
    assert announcer.left_open == {("glm", EventName.BACKEND_DOWN)}
    announcer.say(EventName.BACKEND_RECOVERED, "glm", "x")
    assert announcer.left_open == set()


@pytest.mark.parametrize(
    "name", [EventName.BACKEND_NOT_RESTARTED, EventName.BACKEND_OOM_KILLED, EventName.RELIEF_EXHAUSTED]
)
def test_what_tells_that_a_restart_failed_ends_it(announcer: Announcer, events: EventLog, name: EventName) -> None:
    announcer.say(EventName.BACKEND_RESTARTING, "glm", "x")
    announcer.say(name, "glm", "it goes on", restarting=True)
    announcer.say(name, "other", "x", restarting=False)
    announcer.leave_open("glm")
    assert ("glm", EventName.BACKEND_RESTARTING) in announcer.left_open
    announcer.say(name, "glm", "it failed", restarting=False)
    announcer.say(name, "glm", "again", restarting=False)
    begun, *told = events.since(None)
    assert [each.ended for each in told] == [(), (), (begun.id,), ()]
    assert ("glm", EventName.BACKEND_RESTARTING) not in announcer.left_open
    later = Announcer(EventLog(2.0, earlier=events.since(None)), no_alerts(), FakeClock())
    assert ("glm", EventName.BACKEND_RESTARTING) not in later.left_open
    later = Announcer(EventLog(2.0, earlier=events.since(None)[:3]), no_alerts(), FakeClock())
    assert ("glm", EventName.BACKEND_RESTARTING) in later.left_open


def test_what_never_ends_is_forgotten_some_day(announcer: Announcer, events: EventLog) -> None:
    for number in range(100):
        announcer.say(EventName.THRASH_BEGIN, f"glm-{number}", "It thrashes.")
    announcer.say(EventName.THRASH_END, "glm-0", "It is over.")
    announcer.say(EventName.THRASH_END, "glm-99", "It is over.")
    first, last = events.last(2)
    assert first.ended == ()
    assert last.ended == (events.since(None)[99].id,)


@pytest.mark.parametrize("took", [True, False])
def test_what_the_journal_has_is_not_logged_into_it_again(
    events: EventLog, caplog: pytest.LogCaptureFixture, took: bool
) -> None:
    told: list[Event] = []

    class FakeJournal:
        def tell(self, event: Event) -> bool:
            told.append(event)
            return took

    announcer = Announcer(events, no_alerts(), FakeClock(), FakeJournal())  # type: ignore[arg-type]
    announcer.say(EventName.THRASH_BEGIN, "glm", "It thrashes.")
    assert told == events.since(None)
    assert ("It thrashes." in caplog.text) is not took


def test_what_was_told_of_a_backend_that_leaves_the_configuration_ends(announcer: Announcer, events: EventLog) -> None:
    for backend in ("glm", "other"):
        for name in (EventName.BACKEND_OOM_KILLED, EventName.BACKEND_RESTARTING, EventName.THRASH_BEGIN):
            announcer.say(name, backend, "x")
    begun = {event.id for event in events.since(None) if event.backend == "glm"}
    announcer.retire({"glm", "never there"})
    told = events.since(None)[6:]
    assert {event.backend for event in told} == {"glm"}
    assert {each for event in told for each in event.ended} == begun
    assert all("taken out of the configuration" in event.message for event in told)
    announcer.retire({"glm"})
    assert len(events.since(None)) == 6 + len(told)
