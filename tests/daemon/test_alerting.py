"""All sinks: each hears what it wants, what waits outlives the daemon, and a disk that takes nothing harms nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from daemon_fakes import FakeClock, HeldWorkers

from moetuned import alerts
from moetuned.alerts import Runs, SinkKind, SinkResult
from moetuned.daemon.alerting import Alerting
from moetuned.daemon.workers import Lane
from moetuned.schema.alert import ExecAlert, WebhookAlert
from moetuned.schema.event import Event, EventName

N = EventName
HOOK = WebhookAlert(url="http://127.0.0.1:1/")
FULL = OSError(errno.ENOSPC, "No space left on device")


class Rig:
    def __init__(self, directory: Path) -> None:
        self.directory = str(directory / "alerts")
        self.clock, self.workers = FakeClock(), HeldWorkers()
        self.alerting = self.started()
        self.results = [SinkResult("a", True, "taken")]
        self.sent: list[tuple[str, str]] = []
        self.number = 0
        self.journal = "/nonexistent"

    def started(self, boot: str = "boot") -> Alerting:
        return Alerting(self.workers, self.clock, self.directory, boot)  # type: ignore[arg-type]

    def find(self, kind: str) -> SinkKind:
        if kind == "mail":
            raise LookupError("there is no sink 'mail'")

        def send(event: Event, _config: Any) -> list[SinkResult]:
            self.sent.append((kind, event.id))
            return self.results

        target = self.journal if kind == "journal" else kind
        return SinkKind(send, lambda _config: target, Runs.THREAD, kind == "webhook")

    def hear(self, name: EventName = N.TUNING_DRIFTED) -> None:
        self.number += 1
        self.alerting.hear(Event(f"1-{self.number}", name, 1.0, 1.0, "glm", "x"))

    def deliver(self) -> None:
        """All that is on its way, and all that follows it."""
        while waiting := [key for _, key, *_ in self.workers.jobs if key.startswith("alert sink")]:
            self.workers.finish(waiting[0], really=True)

    def keep(self) -> None:
        while self.workers.waiting(Lane.KEEP):
            self.workers.finish("keeping alerts", really=True)


def names(rig: Rig) -> tuple[str, ...]:
    return tuple(view.name for view in rig.alerting.view().sinks)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    rig = Rig(tmp_path)
    monkeypatch.setattr(alerts, "find", rig.find)
    return rig


def test_only_those_that_subscribed_hear_it(rig: Rig) -> None:
    rig.alerting.configure([ExecAlert(on=[N.BACKEND_DOWN]), HOOK, ExecAlert()])
    rig.hear(N.THRASH_BEGIN)
    rig.deliver()
    assert rig.sent == [("webhook", "1-1"), ("exec", "1-1")]
    assert names(rig) == ("exec", "webhook", "exec-2")


def test_one_that_hangs_holds_up_no_other(rig: Rig) -> None:
    rig.alerting.configure([ExecAlert(), HOOK])
    rig.hear()
    rig.hear()
    for _ in range(2):
        rig.workers.finish("alert sink webhook", really=True)
    assert rig.sent == [("webhook", "1-1"), ("webhook", "1-2")]
    assert [view.waiting for view in rig.alerting.view().sinks] == [2, 0]


def test_what_waits_outlives_the_daemon(rig: Rig) -> None:
    rig.alerting.configure([HOOK])
    rig.hear(N.THRASH_BEGIN)
    rig.hear()
    rig.keep()
    assert rig.alerting.pending
    rig.workers.jobs.clear()  # as kill -9 does
    rig.alerting = rig.started()
    rig.alerting.configure([HOOK])
    rig.alerting.tick()
    rig.deliver()
    rig.hear(N.THRASH_END)
    rig.deliver()
    assert rig.sent == [("webhook", "1-1"), ("webhook", "1-2"), ("webhook", "1-3")]


def test_what_was_held_is_not_true_after_a_boot(rig: Rig) -> None:
    quiet = msgspec.structs.replace(HOOK, quiet_hours="00:00-23:59")
    rig.alerting.configure([quiet])
    rig.hear(N.THRASH_BEGIN)
    rig.keep()
    assert rig.alerting.view().sinks[0].held == 1
    for boot, held in (("boot", 1), ("another", 0)):
        rig.alerting = rig.started(boot)
        rig.alerting.configure([quiet])
        assert rig.alerting.view().sinks[0].held == held


def test_a_file_that_makes_no_sense_is_set_aside(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    os.makedirs(rig.directory, 0o700)
    Path(rig.directory, "webhook.json").write_text("{")
    rig.alerting.configure([HOOK])
    assert "is set aside as" in caplog.text
    rig.hear()
    rig.deliver()
    assert rig.sent == [("webhook", "1-1")]


def test_a_disk_that_is_full_harms_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.alerting.configure([HOOK])
    rig.keep()
    rig.results = [SinkResult("a", False, "no", retry=True)]
    rig.hear()
    rig.workers.finish("keeping alerts", FULL)
    rig.workers.finish("alert sink", really=True)
    problem = rig.alerting.view().sinks[0].problem
    assert problem is not None
    assert "No space left on device" in problem
    assert rig.workers.keys() == [], "not again and again"
    assert not rig.alerting.pending, "it does not hold up the end"
    rig.hear()
    assert caplog.text.count("No space left") == 1
    rig.clock.now += 60
    rig.alerting.tick()
    rig.keep()
    assert rig.alerting.view().sinks[0].problem is None
    assert len(msgspec.json.decode(Path(rig.directory, "webhook.json").read_bytes())["outbox"]["waiting"]) == 2


def test_a_reload_keeps_what_waits(rig: Rig) -> None:
    rig.alerting.configure([HOOK, ExecAlert()])
    rig.hear()
    rig.workers.finish("alert sink exec", really=True)
    rig.alerting.configure([msgspec.structs.replace(HOOK, timeout="5s")])
    rig.deliver()
    rig.keep()
    assert rig.sent == [("exec", "1-1"), ("webhook", "1-1")]
    assert rig.alerting.view().sinks[0].timeout_seconds == 5.0
    assert os.listdir(rig.directory) == ["webhook.json"], "nothing is left of the other"


def test_of_a_sink_that_is_gone_what_waited_is_told(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.alerting.configure([HOOK])
    rig.hear()
    rig.keep()
    rig.alerting.configure([])
    rig.keep()
    assert "no alert sink webhook any more: 1 alerts that waited for it are dropped" in caplog.text
    assert os.listdir(rig.directory) == []


def test_a_kind_that_is_not_there_is_told_and_harms_no_other(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    from moetuned.schema.alert import MailAlert

    rig.alerting.configure([MailAlert(to=["root"]), ExecAlert()])
    rig.hear()
    rig.deliver()
    assert rig.sent == [("exec", "1-1")]
    assert "there is no sink 'mail'" in caplog.text
    assert rig.alerting.view().sinks[0].problem == "there is no sink 'mail'"


def test_trying_one_or_all(rig: Rig) -> None:
    rig.alerting.configure([HOOK, ExecAlert(on=[N.THRASH_BEGIN])])
    test = Event("1-t", N.TEST, 0.0, 0.0, None, "a test")
    with pytest.raises(LookupError, match=r"there is no alert sink 'phone'; there are: webhook, exec"):
        rig.alerting.test(test, "phone")
    assert rig.alerting.test(test, "exec") == ("exec",)
    rig.deliver()
    assert rig.alerting.test(test, None) == ("webhook", "exec")
    rig.deliver()
    assert rig.sent == [("exec", "1-t"), ("webhook", "1-t"), ("exec", "1-t")]
    assert [view.tested.ok for view in rig.alerting.view().sinks] == [True, True]


def test_nothing_is_written_where_there_is_nothing_to_keep(rig: Rig) -> None:
    rig.alerting.configure([])
    rig.keep()
    assert not os.path.exists(rig.directory)


def test_the_journal_is_seen_and_tried_where_it_is_and_told_by_somebody_else(rig: Rig) -> None:
    rig.alerting.configure([HOOK])
    assert names(rig) == ("webhook",)
    rig.journal = "/dev/null"
    rig.alerting.configure([HOOK])
    assert names(rig) == ("journal", "webhook")
    rig.hear()
    rig.deliver()
    assert rig.sent == [("webhook", "1-1")]
    assert rig.alerting.test(Event("1-t", N.TEST, 0.0, 0.0, None, "a test"), "journal") == ("journal",)
    rig.deliver()
    assert rig.sent[1:] == [("journal", "1-t")]
    rig.keep()
    assert os.listdir(rig.directory) == ["webhook.json"], "nothing is kept of it"
