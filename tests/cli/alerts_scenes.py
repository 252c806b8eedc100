"""A client that answers `moetunectl alerts` as the daemon does."""

from __future__ import annotations

import pytest

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError
from moetuned.cli import alerts_test
from moetuned.schema.alert_view import AlertsAnswer, AlertSinkView, AlertTestAnswer, DeliveryView
from moetuned.schema.event import EventName


def view(name: str, tested: DeliveryView | None = None, timeout: float = 10.0) -> AlertSinkView:
    return AlertSinkView(name, "webhook", "https://example.org/…", tested=tested, timeout_seconds=timeout)


def delivery(event_id: str, *, ok: bool = True) -> DeliveryView:
    return DeliveryView(EventName.TEST, event_id, ok, "answered", 1.0, 0.5)


class FakeDaemon:
    def __init__(self, names: tuple[str, ...], *answers: tuple[AlertSinkView, ...]) -> None:
        self.names = names
        self.answers = list(answers)
        self.tried: list[str | None] = []

    def alerts(self) -> AlertsAnswer:
        return AlertsAnswer(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    def test_alerts(self, sink: str | None) -> AlertTestAnswer:
        self.tried.append(sink)
        if sink is not None and sink not in self.names:
            raise DaemonError(f"there is no alert sink {sink!r}")
        return AlertTestAnswer("1-t", self.names if sink is None else (sink,))


def answer_with(monkeypatch: pytest.MonkeyPatch, daemon: FakeDaemon) -> FakeDaemon:
    monkeypatch.setattr(Client, "alerts", lambda _self: daemon.alerts())
    monkeypatch.setattr(Client, "test_alerts", lambda _self, sink=None: daemon.test_alerts(sink))
    monkeypatch.setattr(alerts_test, "_POLL_SECONDS", 0.0)
    return daemon
