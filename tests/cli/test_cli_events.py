from __future__ import annotations

import msgspec
import pytest
from status_scenes import thrash

from moetuned.api.client import Client
from moetuned.cli import main
from moetuned.schema.event import Event


@pytest.fixture
def asked(monkeypatch):
    seen = []

    def events(_self, since=None):
        seen.append(since)
        return list(thrash().events) if since != "1-9" else []

    monkeypatch.setattr(Client, "events", events)
    return seen


def test_lines(asked, capsys):
    assert main.run(["events"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "thrash_begin glm: it reads 457 MB/s" in lines[1]
    assert asked == [None]


def test_json_lines(asked, capsys):
    assert main.run(["events", "--json", "--since", "1-0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [msgspec.json.decode(line, type=Event) for line in lines] == list(thrash().events)
    assert asked == ["1-0"]


def test_none(asked, capsys):
    assert main.run(["events", "--since", "1-9"]) == 0
    assert capsys.readouterr().out == ""
    assert main.run(["events", "--since", "1-9", "--json"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("text", ["zzz", "", "1", "-", "1-", "1-0 ", "1-0x", "../x", "9" * 40 + "-1"])
def test_what_is_no_id_is_wrong_usage(asked, capsys, text):
    assert main.run(["events", f"--since={text}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is no event id; take one from moetunectl events --json." in captured.err
    assert asked == []


def test_an_id_as_the_daemon_gives_it_is_one(asked):
    from moetuned.daemon.event_log import EventLog

    given = EventLog(1.8e9).new_id()
    assert main.run(["events", "--since", given]) == 0
    assert asked == [given]
