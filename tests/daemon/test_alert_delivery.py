"""A delivery in a process of its own: one that answers, hangs, crashes, says rubbish, and one for which there is no process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moetuned.alerts import Runs, SinkKind, SinkResult
from moetuned.daemon import alert_delivery
from moetuned.daemon.alert_delivery import deliver
from moetuned.schema.alert import WebhookAlert
from moetuned.schema.event import Event, EventName

EVENT = Event("1-2", EventName.THRASH_BEGIN, 1.0, 5.0, "glm", "It thrashes.")
CONFIG = WebhookAlert(url="http://127.0.0.1:1/secret", timeout="100ms")


def never(_event: Event, _config: Any) -> list[SinkResult]:
    raise AssertionError("it runs in another process")


KIND = SinkKind(never, lambda _config: "somewhere", Runs.CHILD, True)
Starts = Callable[[str], None]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    """Has the process run this Python instead."""
    return lambda code: monkeypatch.setattr(alert_delivery, "_START", code)


def test_what_it_says_is_the_result(starts: Starts, tmp_path: Path) -> None:
    starts(
        "import sys, json; order = json.load(sys.stdin)\n"
        f"open({str(tmp_path / 'order')!r}, 'w').write(json.dumps([order, sys.argv]))\n"
        "print(json.dumps([{'target': 'a', 'ok': True, 'detail': 'b'}, {'target': 'c', 'ok': False, 'detail': 'd', 'retry': True}]))"
    )
    first, second = deliver(KIND, EVENT, CONFIG)
    assert (first.target, first.ok, first.detail) == ("a", True, "b")
    assert (second.ok, second.retry) == (False, True)
    order, arguments = msgspec.json.decode((tmp_path / "order").read_bytes())
    assert order["event"]["id"] == "1-2"
    assert order["config"] == msgspec.to_builtins(CONFIG)
    assert "secret" not in repr(arguments), "what is in a process's arguments, everybody can read"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit(3)", "ended with code 3"),
        ("import os; os.kill(os.getpid(), 9)", "ended by a signal"),
        ("print('rubbish')", "ended with code 0"),
        ("print('[1, 2]')", "ended with code 0"),
        ("raise ValueError('so it is\\x1b[31m')", "ended with code 1: ValueError: so it is?[31m"),
        ("print('[' * 10_000_000)", "ended with code 0"),
    ],
)  # fmt: skip
def test_one_that_ends_without_a_result_is_tried_again(starts: Starts, code: str, why: str) -> None:
    starts(code)
    (result,) = deliver(KIND, EVENT, CONFIG)
    assert (result.target, result.ok, result.retry) == ("somewhere", False, True)
    assert why in result.detail


def test_one_that_hangs_is_ended(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_delivery, "START_SECONDS", 0.2)
    starts("import time; time.sleep(600)")
    (result,) = deliver(KIND, EVENT, CONFIG)
    assert (result.ok, result.retry) == (False, True)
    assert "was ended" in result.detail


def test_no_process_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_delivery.sys, "executable", "/nonexistent/python")
    (result,) = deliver(KIND, EVENT, CONFIG)
    assert (result.ok, result.retry) == (False, True)
    assert "No such file" in result.detail


def test_others_run_here() -> None:
    done = [SinkResult("a", True, "b")]
    assert (
        deliver(SinkKind(lambda _event, _config: done, lambda _config: "", Runs.THREAD, False), EVENT, CONFIG) is done
    )
