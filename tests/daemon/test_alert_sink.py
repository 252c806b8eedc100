"""One sink in the daemon: one at a time and in order, tried again when due, and what is lost is known."""

from __future__ import annotations

import logging
import time
from typing import Any

import msgspec
import pytest
from daemon_fakes import FakeClock, HeldWorkers

from moetuned.alerts import Runs, SinkKind, SinkResult
from moetuned.daemon.alert_sink import AlertSink
from moetuned.decide import alert_queue
from moetuned.schema.alert import ExecAlert, Sink, WebhookAlert
from moetuned.schema.event import Event, EventName

N = EventName
OK = [SinkResult("a", True, "taken", 0.5)]
AGAIN = [SinkResult("a", False, "a answered 503", 0.5, retry=True)]
REFUSED = [SinkResult("a", False, "a answered 404", 0.5)]


class Rig:
    def __init__(self, config: Sink | None = None, *, kept: bool = True) -> None:
        self.clock, self.workers = FakeClock(), HeldWorkers()
        self.changes = 0
        self.sent: list[Event] = []
        self.kind = SinkKind(self._send, lambda _config: "somewhere", Runs.THREAD, kept)
        self.number = 0
        self.sink = self.made(config or WebhookAlert(url="http://127.0.0.1:1/"))

    def made(self, config: Any) -> AlertSink:
        return AlertSink("phone", config, self.kind, self.workers, self.clock, self._changed, lambda: 1.0)  # type: ignore[arg-type]

    def _send(self, event: Event, _config: object) -> list[SinkResult]:
        self.sent.append(event)
        return self.results

    def _changed(self, _sink: AlertSink) -> None:
        self.changes += 1

    def hear(self, name: EventName = N.TUNING_DRIFTED) -> Event:
        self.number += 1
        event = Event(f"1-{self.number}", name, self.clock.wall(), self.clock.now, "glm", f"event {self.number}")
        self.sink.hear(event)
        return event

    def deliver(self, results: list[SinkResult]) -> None:
        self.results = results
        self.workers.finish("alert sink phone", really=True)

    @property
    def ids(self) -> list[str]:
        return [event.id for event in self.sent]


def test_one_at_a_time_and_in_order() -> None:
    rig = Rig()
    for _ in range(3):
        rig.hear()
    assert len(rig.workers.jobs) == 1
    for _ in range(3):
        rig.deliver(OK)
    assert rig.ids == ["1-1", "1-2", "1-3"]
    assert not rig.sink.pending
    assert rig.sink.view().last.event_id == "1-3"


def test_what_fails_is_tried_again_when_it_is_due_and_holds_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig()
    rig.hear()
    rig.hear()
    rig.deliver(AGAIN)
    assert rig.workers.jobs == []
    assert not rig.sink.pending
    assert (rig.sink.view().waiting, rig.sink.view().tries, rig.sink.view().next_try_seconds) == (2, 1, 2.0)
    rig.clock.now += 1.9
    rig.sink.tick()
    assert rig.workers.jobs == []
    rig.clock.now += 0.1
    rig.sink.tick()
    rig.deliver(AGAIN)
    assert rig.sink.view().next_try_seconds == 4.0
    rig.clock.now += 4
    rig.sink.tick()
    rig.deliver(OK)
    rig.deliver(OK)
    assert rig.ids == ["1-1", "1-1", "1-1", "1-2"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"], (
        "told once, and when it arrives"
    )
    assert "after 2 tries in vain" in caplog.text


def test_the_other_side_says_when() -> None:
    rig = Rig()
    rig.hear()
    rig.deliver([msgspec.structs.replace(AGAIN[0], retry_after_seconds=99.0)])
    assert rig.sink.view().next_try_seconds == 99.0


def test_what_is_refused_is_told_and_its_end_does_not_go(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.hear(N.THRASH_BEGIN)
    rig.deliver(REFUSED)
    rig.hear(N.THRASH_END)
    assert rig.workers.jobs == []
    assert "a answered 404" in caplog.text
    assert rig.sink.view().failed == 1


def test_a_sink_that_does_not_try_again_gets_each_once_and_the_end_all_the_same() -> None:
    rig = Rig(ExecAlert(ends=True), kept=False)
    rig.hear(N.THRASH_BEGIN)
    rig.deliver(AGAIN)
    rig.hear(N.THRASH_END)
    rig.deliver(OK)
    assert rig.ids == ["1-1", "1-2"]
    assert rig.sink.view().failed == 1


def test_a_sink_that_breaks_is_a_failure_like_any_other() -> None:
    rig = Rig()
    rig.hear()
    rig.workers.finish("alert sink phone", ZeroDivisionError("so"))
    assert rig.sink.view().last.detail == "ZeroDivisionError: so"
    assert rig.sink.view().waiting == 1


def test_what_is_dropped_is_told_with_the_next_and_the_one_on_its_way_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_queue, "MOST_WAITING", 2)
    rig = Rig()
    for _ in range(4):
        rig.hear()
    rig.deliver(OK)
    rig.deliver(OK)
    assert rig.ids == ["1-1", "1-4"]
    assert "2 alerts were dropped" in rig.sent[1].message
    assert rig.sink.view().dropped == 2


def test_of_a_begin_that_is_dropped_the_end_does_not_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_queue, "MOST_WAITING", 2)
    rig = Rig()
    rig.hear()
    rig.hear(N.THRASH_BEGIN)
    rig.hear()
    rig.hear(N.THRASH_END)
    rig.deliver(OK)
    rig.deliver(OK)
    assert rig.ids == ["1-1", "1-3"]
    assert rig.workers.jobs == []


def test_quiet_hours_are_of_the_local_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-5")  # 5 h east of Greenwich
    time.tzset()
    try:
        rig = Rig(WebhookAlert(url="http://127.0.0.1:1/", quiet_hours="13:00-13:30"))
        # FakeClock: 2027-01-15 08:16:40 UTC
        rig.hear(N.THRASH_BEGIN)
        assert (rig.workers.jobs, rig.sink.view().held) == ([], 1)
        rig.clock.now += 900
        rig.sink.tick()
        rig.deliver(OK)
        assert (rig.ids, rig.sink.view().held) == (["1-1"], 0)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_test_goes_first_passes_every_filter_and_is_not_tried_again() -> None:
    rig = Rig(WebhookAlert(url="http://127.0.0.1:1/", on=[N.THRASH_BEGIN]))
    rig.hear(N.THRASH_BEGIN)
    rig.deliver(AGAIN)
    rig.sink.test(Event("1-t", N.TEST, 0.0, 0.0, None, "a test"))
    assert rig.sink.pending
    rig.deliver(REFUSED)
    view = rig.sink.view()
    assert (view.tested.event_id, view.tested.ok, view.tested.detail) == ("1-t", False, "a answered 404")
    assert (view.waiting, view.tries, view.failed, view.last.event_id) == (1, 1, 0, "1-1")
    rig.sink.tick()
    assert rig.workers.jobs == []


def test_a_test_waits_for_the_one_that_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_queue, "MOST_WAITING", 1)
    rig = Rig()
    rig.hear()
    rig.sink.test(Event("1-t", N.TEST, 0.0, 0.0, None, "a test"))
    rig.hear()
    rig.deliver(OK)
    rig.deliver(OK)
    assert rig.ids == ["1-1", "1-t"], "the second gave way, not the one on its way"
    assert rig.sink.view().last.event_id == "1-1"


def test_a_full_lane_is_tried_at_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    with monkeypatch.context() as patch:
        patch.setattr(rig.workers, "submit", lambda *_: False)
        rig.hear()
    assert rig.workers.jobs == []
    rig.sink.tick()
    rig.deliver(OK)
    assert rig.ids == ["1-1"]


def test_the_next_daemon_goes_on() -> None:
    rig = Rig()
    rig.hear(N.THRASH_BEGIN)
    rig.hear()
    rig.deliver(OK)
    kept = msgspec.json.decode(msgspec.json.encode(rig.sink.kept("boot")), type=type(rig.sink.kept("boot")))
    rig.workers.jobs.clear()
    rig.sink = rig.made(WebhookAlert(url="http://127.0.0.1:1/"))
    rig.sink.take_up(kept, "boot")
    rig.sink.tick()
    rig.deliver(OK)
    rig.hear(N.THRASH_END)
    rig.deliver(OK)
    assert rig.ids == ["1-1", "1-2", "1-3"]


def test_of_a_sink_that_does_not_try_again_nothing_that_waits_is_kept() -> None:
    rig = Rig(kept=False)
    rig.hear(N.THRASH_BEGIN)
    kept = rig.sink.kept("boot")
    assert kept.outbox.waiting == ()
    assert kept.gate.told


def test_one_that_the_config_names_no_more_sends_nothing_more() -> None:
    rig = Rig()
    rig.hear()
    rig.hear()
    before = rig.changes
    rig.sink.leave()
    rig.deliver(AGAIN)
    assert rig.workers.jobs == []
    assert rig.changes == before
    rig.sink.tick()
    assert rig.ids == ["1-1"]


def test_without_a_module_it_takes_nothing() -> None:
    rig = Rig()
    rig.kind = None  # type: ignore[assignment]
    rig.sink = rig.made(WebhookAlert(url="http://127.0.0.1:1/"))
    rig.hear()
    assert not rig.sink.pending
    assert rig.sink.view().target == ""


def repeating() -> Rig:
    rig = Rig()
    rig.kind = msgspec.structs.replace(rig.kind, repeat_seconds=240.0)
    rig.sink = rig.made(WebhookAlert(url="http://127.0.0.1:1/"))
    return rig


def tick_after(rig: Rig, seconds: float, *backends: str) -> None:
    rig.clock.now += seconds
    rig.sink.tick(backends)


def test_what_goes_on_is_told_again_until_its_end_is_delivered() -> None:
    rig = repeating()
    begin = rig.hear(N.THRASH_BEGIN)
    rig.deliver(OK)
    before = rig.sink.view()
    for _ in range(2):
        tick_after(rig, 239.0, "glm")
        assert rig.workers.jobs == []
        tick_after(rig, 1.0, "glm")
        rig.deliver(OK)
    assert rig.ids == [begin.id] * 3
    assert rig.sink.view() == before, "a repeat is no delivery of its own"
    tick_after(rig, 239.0, "glm")
    end = rig.hear(N.THRASH_END)
    rig.deliver(OK)
    tick_after(rig, 1.0, "glm")
    assert rig.workers.jobs == []
    assert rig.ids == [begin.id] * 3 + [end.id]


def test_a_repeat_waits_for_what_waits_and_its_failure_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = repeating()
    begin = rig.hear(N.THRASH_BEGIN)
    rig.deliver(OK)
    other = rig.hear()
    rig.deliver(AGAIN)
    rig.sink._next_try = rig.clock.now + 1000.0
    tick_after(rig, 240.0, "glm")
    assert rig.workers.jobs == []
    tick_after(rig, 760.0, "glm")
    rig.deliver(OK)
    for _ in range(3):
        assert len(rig.workers.jobs) == 1
        rig.deliver(AGAIN)
        tick_after(rig, 240.0, "glm")
    assert rig.ids == [begin.id, other.id, other.id, *[begin.id] * 3]
    assert caplog.text.count("it could not be told that thrash_begin goes on: a answered 503") == 1
    assert rig.sink.view().waiting == 0


def test_nothing_is_repeated_for_a_sink_that_does_not_ask_or_a_backend_that_is_gone() -> None:
    for rig, backend in ((Rig(), "glm"), (repeating(), "qwen")):
        rig.hear(N.THRASH_BEGIN)
        rig.deliver(OK)
        tick_after(rig, 1000.0, backend)
        assert rig.workers.jobs == []


def test_what_was_not_delivered_is_not_repeated() -> None:
    rig = repeating()
    rig.hear(N.THRASH_BEGIN)
    rig.deliver(REFUSED)
    tick_after(rig, 1000.0, "glm")
    assert rig.workers.jobs == []


def test_what_reached_one_of_several_is_delivered_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.hear(N.THRASH_BEGIN)
    rig.deliver([*OK, *REFUSED])
    assert "thrash_begin did not reach all: a answered 404" in caplog.text
    assert rig.sink.view().last.ok is False
    rig.hear(N.THRASH_END)
    rig.deliver(OK)
    assert [event.name for event in rig.sent] == [N.THRASH_BEGIN, N.THRASH_END]
