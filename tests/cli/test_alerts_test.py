"""moetunectl alerts test."""

from __future__ import annotations

import msgspec
import pytest
from alerts_scenes import FakeDaemon, answer_with, delivery, view

from moetuned.cli import alerts_test, main


def test_a_test_waits_for_its_own_results(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    earlier, now = delivery("1-0", ok=False), delivery("1-t")
    daemon = answer_with(
        monkeypatch,
        FakeDaemon(
            ("a", "b"),
            (view("a", earlier), view("b")),
            (view("a", now), view("b", earlier)),
            (view("a", now), view("b", now), view("c")),
        ),
    )
    assert main.run(["alerts", "test"]) == 0
    assert daemon.tried == [None]
    assert capsys.readouterr().out == "a  ok      answered (0.5 s)\nb  ok      answered (0.5 s)\n"


def test_one_that_failed_is_the_exit_code(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer_with(monkeypatch, FakeDaemon(("a", "b"), (view("a", delivery("1-t")), view("b", delivery("1-t", ok=False)))))
    assert main.run(["alerts", "test"]) == 1
    assert "b  failed  answered" in capsys.readouterr().out
    assert main.run(["alerts", "test", "a"]) == 0
    assert capsys.readouterr().out == "a  ok      answered (0.5 s)\n"


def test_json_is_an_object_a_sink(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer_with(monkeypatch, FakeDaemon(("a",), (view("a", delivery("1-t")),)))
    assert main.run(["alerts", "test", "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["sink"], told["kind"], told["result"]["ok"]) == ("a", "webhook", True)


def test_one_that_says_nothing_is_left_some_day(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(alerts_test, "_EXTRA_SECONDS", -1.0)
    answer_with(monkeypatch, FakeDaemon(("a",), (view("a", timeout=0.0),)))
    assert main.run(["alerts", "test"]) == 1
    assert "a  no answer" in capsys.readouterr().out


def test_no_sink_and_one_that_is_not_there(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer_with(monkeypatch, FakeDaemon((), ()))
    assert main.run(["alerts", "test"]) == 1
    assert "There is no alert sink" in capsys.readouterr().err
    assert main.run(["alerts", "test", "phone"]) == 1
    assert "there is no alert sink 'phone'" in capsys.readouterr().err


def test_without_a_daemon_it_says_what_to_do(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["alerts", "test", "--socket", str(tmp_path / "api.sock")]) == 3
    assert "moetuned is not running" in capsys.readouterr().err
