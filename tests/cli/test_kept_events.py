"""Events from the daemon, from its file, and as they come."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from moetuned.api.errors import DaemonUnreachable
from moetuned.cli import kept_events
from moetuned.cli.kept_events import after, asked, followed
from moetuned.schema.event import Event, EventName, KeptEvents
from moetuned.state import event_store


def event(number: int) -> Event:
    return Event(f"1-{number}", EventName.THRASH_BEGIN, 10.0 * number, 1.0, "glm", "x")


class FakeClient:
    """Gives what it is told to, one answer a question."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str | float | None] = []

    def kept_events(self, since: str | float | None = None) -> KeptEvents:
        self.asked.append(since)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def events(self, since: str | float | None = None) -> list[Event]:
        return list(self.kept_events(since).events)


def test_what_the_daemon_has_no_more_comes_from_its_file(tmp_path: Path) -> None:
    directory = str(tmp_path / "state")
    event_store.append([event(number) for number in range(1, 6)], directory)
    answer = KeptEvents((event(4), event(5), event(6)), False, f"{directory}/events.jsonl")
    assert asked(FakeClient(answer), 15.0) == [event(number) for number in range(2, 7)]
    assert asked(FakeClient(answer), "1-2") == [event(number) for number in range(3, 7)]
    assert asked(FakeClient(answer), None) == list(answer.events), "the newest are what was asked for"
    whole = KeptEvents((event(4),), True, f"{directory}/events.jsonl")
    assert asked(FakeClient(whole), 1.0) == [event(4)]


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink("elsewhere", tmp_path / "events.jsonl")
    answer = KeptEvents((event(4),), False, f"{tmp_path}/events.jsonl")
    assert asked(FakeClient(answer), 1.0) == [event(4)]
    assert f"older events are in {tmp_path}/events.jsonl" in capsys.readouterr().err


def test_after() -> None:
    events = [event(number) for number in range(1, 4)]
    assert after(events, 10.0) == events[1:]
    assert after(events, "1-2") == events[2:]
    assert after(events, "9-9") == events


def test_following_shows_each_once_and_waits_for_a_daemon_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kept_events.time, "sleep", lambda _seconds: None)
    gone = DaemonUnreachable("moetuned is not running.")
    client = FakeClient(
        KeptEvents((event(2),)), KeptEvents(), gone, gone, KeptEvents((event(1), event(2), event(3))), KeptEvents((event(4),))
    )  # fmt: skip
    shown = followed(client, [event(1)], None)
    assert [next(shown) for _ in range(4)] == [[event(2)], [], [event(3)], [event(4)]]
    assert client.asked == ["1-1", "1-2", "1-2", "1-2", "1-2", "1-3"]
    assert capsys.readouterr().err == "moetunectl: moetuned is not running. Waiting for it.\n"


def test_following_from_nothing_on() -> None:
    client = FakeClient(KeptEvents((event(1),)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_events.time, "sleep", lambda _seconds: None)
        assert next(followed(client, [], 5.0)) == [event(1)]
    assert client.asked == [5.0]
