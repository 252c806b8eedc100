from __future__ import annotations

import io
import signal
import sys

import msgspec
import pytest

from moetuned.alerts import SinkResult, webhook
from moetuned.alerts.__main__ import main
from moetuned.schema.alert import Alert, WebhookAlert
from moetuned.schema.event import Event, EventName

EVENT = Event("1-2", EventName.THRASH_BEGIN, 1.0, 5.0, "glm", "It thrashes.")


class _Stream:
    def __init__(self, data: bytes = b"") -> None:
        self.buffer = io.BytesIO(data)


def test_it_gives_the_order_to_its_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    config = WebhookAlert(url="http://127.0.0.1:1/")
    said: list[object] = []

    def send(event: Event, config: Alert) -> list[SinkResult]:
        said.append((event, config, signal.alarm(0)))
        return [SinkResult("a", False, "b", 1.0, retry=True, retry_after_seconds=5.0)]

    monkeypatch.setattr(webhook, "send", send)
    order = msgspec.json.encode({"event": EVENT, "config": config, "seconds": 1000})
    monkeypatch.setattr(sys, "stdin", _Stream(order))
    out = _Stream()
    monkeypatch.setattr(sys, "stdout", out)
    assert main() == 0
    assert said == [(EVENT, config, pytest.approx(1000, abs=5))]
    assert msgspec.json.decode(out.buffer.getvalue(), type=list[SinkResult]) == [
        SinkResult("a", False, "b", 1.0, retry=True, retry_after_seconds=5.0)
    ]
