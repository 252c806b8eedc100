"""Saying: kept, logged, given to the sinks that subscribe to it."""

from __future__ import annotations

import logging

import pytest
from daemon_fakes import FakeClock, HeldWorkers

from moetuned.daemon.announcer import Announcer
from moetuned.daemon.event_log import EventLog
from moetuned.schema.alert import ExecAlert
from moetuned.schema.event import Event, EventName


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
    events: EventLog, workers: HeldWorkers, caplog: pytest.LogCaptureFixture, took: bool
) -> None:
    told: list[Event] = []

    class FakeJournal:
        def tell(self, event: Event) -> bool:
            told.append(event)
            return took

    announcer = Announcer(events, workers, FakeClock(), FakeJournal())  # type: ignore[arg-type]
    announcer.say(EventName.THRASH_BEGIN, "glm", "It thrashes.")
    assert told == events.since(None)
    assert ("It thrashes." in caplog.text) is not took
