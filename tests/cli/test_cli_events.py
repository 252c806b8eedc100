from __future__ import annotations

import time

import msgspec
import pytest
from status_scenes import thrash

from moetuned.api.client import Client
from moetuned.cli import main
from moetuned.schema.event import Event, KeptEvents
from moetuned.state import event_store


@pytest.fixture
def asked(monkeypatch):
    seen = []

    def kept_events(_self, since=None):
        seen.append(since)
        return KeptEvents(thrash().events if since != "1-9" else ())

    monkeypatch.setattr(Client, "kept_events", kept_events)
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
    assert "is no event id (take one from moetunectl events --json) and no time; write e.g. 1d" in captured.err
    assert asked == []


def test_an_id_as_the_daemon_gives_it_is_one(asked):
    from moetuned.daemon.event_log import EventLog

    given = EventLog(1.8e9).new_id()
    assert main.run(["events", "--since", given]) == 0
    assert asked == [given]


@pytest.mark.parametrize(
    ("text", "ago"), [("1d", 86400.0), ("2h", 7200.0), ("10m", 600.0), ("1.5h", 5400.0), ("1970-01-02T00:00Z", None)]
)
def test_since_a_time(asked, text, ago):
    assert main.run(["events", "--since", text]) == 0
    (since,) = asked
    assert since == pytest.approx(86400.0 if ago is None else time.time() - ago, abs=60)


def test_a_time_without_a_zone_is_local(asked, monkeypatch):
    monkeypatch.setenv("TZ", "UTC-5")
    time.tzset()
    try:
        assert main.run(["events", "--since", "1970-01-02T05:00"]) == 0
        assert asked == [86400.0]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_only_those_of_a_backend_or_a_name(asked, capsys):
    first, second = thrash().events
    assert main.run(["events", "--json", "--event", second.name.value, "--backend", second.backend]) == 0
    assert second.id in capsys.readouterr().out
    assert main.run(["events", "--json", "--event", second.name.value]) == 0
    assert first.id not in capsys.readouterr().out
    assert main.run(["events", "--backend", "another"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "No such events.\n")


def test_a_name_that_is_none_is_wrong_usage(asked, capsys):
    assert main.run(["events", "--event", "trash_begin"]) == 2
    assert "is no event; there are: thrash_begin," in capsys.readouterr().err


def test_while_no_daemon_runs_the_file_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MOETUNED_STATE_DIR", str(tmp_path))
    missing = str(tmp_path / "api.sock")
    assert main.run(["events", "--socket", missing]) == 3
    assert "moetuned is not running" in capsys.readouterr().err
    event_store.append(thrash().events, str(tmp_path))
    assert main.run(["events", "--json", "--socket", missing]) == 0
    captured = capsys.readouterr()
    assert [msgspec.json.decode(line, type=Event) for line in captured.out.splitlines()] == list(thrash().events)
    assert captured.err == f"moetunectl: moetuned is not running; these are from {tmp_path}/events.jsonl.\n"
    assert main.run(["events", "--follow", "--socket", missing]) == 3
