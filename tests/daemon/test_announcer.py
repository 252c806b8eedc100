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


def test_bad_news_is_a_warning_and_good_news_is_not(announcer: Announcer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        announcer.say(EventName.THRASH_BEGIN, "glm", "It thrashes.")
        announcer.say(EventName.THRASH_END, "glm", "It is over.")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
