from __future__ import annotations

import json
import pathlib

import pytest

from moetuned.cli import main

TRACES = pathlib.Path(__file__).parent.parent / "data" / "traces"
THRASH = str(TRACES / "thrash.jsonl.gz")


def run(arguments):
    """The exit code."""
    try:
        return main.run(arguments)
    except SystemExit as stop:
        return stop.code


def test_a_second_of_a_recording(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["explain", "--trace", THRASH, "--at", "75"]) == 0
    text = capsys.readouterr().out
    assert "paging: thrashing" in text
    assert "BEYOND   a token costs too much? bytes per token" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_json_holds_values_limits_and_hold_times(capsys):
    assert run(["explain", "--trace", THRASH, "--at", "75", "--json"]) == 0
    (backend,) = json.loads(capsys.readouterr().out)["backends"]
    paging = next(axis for axis in backend["axes"] if axis["axis"] == "paging")
    cost = next(c for c in paging["checks"] if c["signal"] == "bytes_per_token" and c.get("would") == "thrashing")
    assert cost["beyond"]
    assert cost["value"] > cost["limit"]
    assert cost["held_seconds"] >= cost["needed_seconds"]
    assert all(unknown["why"] for unknown in backend["unknown"])


def test_without_a_second_it_is_the_last_one(capsys):
    assert run(["explain", "--trace", THRASH, "--json"]) == 0
    last = json.loads(capsys.readouterr().out)["backends"][0]["at_seconds"]
    assert run(["explain", "--trace", THRASH, "--at", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["backends"][0]["at_seconds"] < last


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--at", "5"], "--trace FILE"),
        (["--config", "moetuned.yaml"], "--trace FILE"),
        (["--trace", "/no/such/trace"], "No such file"),
        (["--trace", THRASH, "--at", "100000"], "the trace ends"),
        (["other", "--trace", THRASH], "a recording of"),
        (["--trace", THRASH, "--at", "-1"], "-1"),
    ],
)
def test_a_wrong_question_gets_one_sentence(capsys, arguments, said):
    assert run(["explain", *arguments]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert not printed.out


def test_the_limits_of_a_config(capsys, tmp_path):
    config = tmp_path / "moetuned.yaml"
    config.write_text("limits: {near: 999T, critical: 1M}\n")

    def limits(*further):
        assert run(["explain", "--trace", THRASH, "--json", *further]) == 0
        (backend,) = json.loads(capsys.readouterr().out)["backends"]
        memory = next(axis for axis in backend["axes"] if axis["axis"] == "memory")
        return {check["would"]: check["limit"] for check in memory["checks"] if check["signal"] == "headroom_bytes"}

    assert limits()["near_limit"] != limits("--config", str(config))["near_limit"] == 999 << 40


def test_without_a_daemon(capsys, tmp_path):
    assert run(["explain", "--socket", str(tmp_path / "none.sock")]) == 3
    assert "not running" in capsys.readouterr().err


def test_a_damaged_recording_is_explained_up_to_its_fault(capsys, tmp_path):
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(pathlib.Path(THRASH).read_bytes()[:-2000])
    assert run(["explain", "--trace", str(cut)]) == 2
    said = capsys.readouterr()
    assert "paging: " in said.out
    (line,) = said.err.splitlines()
    assert "last second that can be read" in line
    assert "cut or damaged" in line
