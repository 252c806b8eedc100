"""Saying: kept, logged, given to the sinks that subscribe to it."""

from __future__ import annotations

import logging

import pytest
from daemon_fakes import FakeClock, HeldWorkers

from moetuned.daemon.announcer import Announcer
from moetuned.daemon.event_log import EventLog
from moetuned.schema.alert import ExecAlert
from moetuned.schema.event import EventName


@pytest.fixture
def workers() -> HeldWorkers:
    return HeldWorkers()


@pytest.fixture
def events() -> EventLog:
    return EventLog(1.0)


@pytest.fixture
def announcer(events: EventLog, workers: HeldWorkers) -> Announcer:
    return Announcer(events, workers, FakeClock())


def test_the_backends_name_is_in_every_message(announcer: Announcer, events: EventLog) -> None:
    announcer.say(EventName.THRASH_BEGIN, "glm", "It thrashes.")
    announcer.say(EventName.BACKEND_DOWN, "glm", "glm exited with code 1")
    announcer.say(EventName.TUNING_DRIFTED, None, "vm.dirty_ratio: changed")
    assert [event.message for event in events.since(None)] == [
        "glm: It thrashes.", "glm exited with code 1", "vm.dirty_ratio: changed",
    ]  # fmt: skip
    assert events.since(None)[0].backend == "glm"


def test_only_sinks_that_subscribed_are_told(announcer: Announcer, workers: HeldWorkers) -> None:
    announcer.sinks = [
        ExecAlert(directory="/all"),
        ExecAlert(directory="/thrash", on=[EventName.THRASH_BEGIN]),
        ExecAlert(directory="/down", on=[EventName.BACKEND_DOWN]),
    ]
    announcer.say(EventName.THRASH_BEGIN, "glm", "It thrashes.")
    assert announcer.pending == 2
    announcer.sinks = []
    announcer.say(EventName.BACKEND_DOWN, "glm", "gone")
    assert announcer.pending == 2
    assert len(set(workers.keys())) == 2


def test_a_sink_that_fails_is_logged_and_nothing_else(
    announcer: Announcer, workers: HeldWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    announcer.sinks = [ExecAlert(directory="/all")]
    announcer.say(EventName.THRASH_BEGIN, "glm", "It thrashes.")
    workers.finish("alert", OSError("no memory"))
    assert "alerts[0] could not be given thrash_begin: no memory" in caplog.text


def test_bad_news_is_a_warning_and_good_news_is_not(announcer: Announcer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        announcer.say(EventName.THRASH_BEGIN, "glm", "It thrashes.")
        announcer.say(EventName.THRASH_END, "glm", "It is over.")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
