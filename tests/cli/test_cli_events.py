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
        return list(thrash().events) if since != "last" else []

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
    assert main.run(["events", "--since", "last"]) == 0
    assert capsys.readouterr().out == ""
    assert main.run(["events", "--since", "last", "--json"]) == 0
    assert capsys.readouterr().out == ""
