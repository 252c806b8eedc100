from __future__ import annotations

import gzip
import json
import pathlib
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from moetuned.cli.replay import command
from moetuned.decide.signals import signal_units

SQUEEZE = pathlib.Path(__file__).parent.parent / "data" / "traces" / "squeeze.jsonl.gz"


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_json_is_one_object_a_sample() -> None:
    code, out, _ = run(str(SQUEEZE), "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(rows) == 130
    assert set(rows[0]) == {"t", "backend", "phase", "paging", "memory", "events", "reasons"}
    begun = [row for row in rows if "thrash_begin" in row["events"]]
    assert len(begun) == 1
    assert any("refaults" in reason and "MB/s read for" in reason for reason in begun[0]["reasons"])


def test_for_people_a_line_is_a_change() -> None:
    code, out, _ = run(str(SQUEEZE))
    lines = out.splitlines()
    assert code == 0
    assert len(lines) < 40
    assert sum("thrash_begin: it thrashes" in line for line in lines) == 1


def test_what_is_no_trace_is_a_usage_error_in_one_sentence(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("{}\n")
    code, out, err = run(str(path))
    assert (code, out) == (2, "")
    assert f"{path}: line 1" in err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path: pathlib.Path) -> None:
    code, _, err = run(str(tmp_path / "none.jsonl"))
    assert code == 2
    assert "none.jsonl: No such file" in err


def lines_of(path: pathlib.Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda lines: [*lines[:20], b"rubbish\n", *lines[20:]], "line 21: JSON is malformed"),
        (lambda lines: [*lines[:20], lines[20][:300]], "line 21: it was cut"),
        (lambda lines: [*lines[:20], *lines[:20]], "line 21: its time (t) is before"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_came_before_a_fault_is_printed(
    tmp_path: pathlib.Path, options: tuple[str, ...], damage: Callable[[list[bytes]], list[bytes]], says: str
) -> None:
    path = tmp_path / "a.jsonl"
    lines = lines_of(SQUEEZE)
    path.write_bytes(b"".join(lines[:20]))
    code, good, _ = run(str(path), *options)
    assert code == 0
    path.write_bytes(b"".join(damage(lines)))
    code, out, err = run(str(path), *options)
    assert (code, out) == (2, good)
    assert says in err
    assert err.count("\n") == 1


def test_a_cut_gzip_is_printed_as_far_as_it_goes_whatever_it_is_called(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.trace"
    data = SQUEEZE.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    code, out, err = run(str(path), "--json")
    count = len(out.splitlines())
    assert code == 2
    assert count > 40
    assert f"after line {count}: the file is cut" in err


def test_signals_are_printed_when_they_are_asked_for(tmp_path: pathlib.Path) -> None:
    rows = [json.loads(line) for line in run(str(SQUEEZE), "--json", "--signals")[1].splitlines()]
    assert set(rows[0]["signals"]) == set(signal_units())
    assert any(row["signals"]["refault_bytes_per_second"] for row in rows)
    text = run(str(SQUEEZE), "--signals")[1]
    assert "refault_bytes_per_second " in text
    assert "MB/s" in text
    assert "unknown: active_ratio" in text


def test_the_limits_of_a_config_are_used(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "moetuned.yaml"
    config.write_text("limits: {near: 97%, critical: 96%}\n")
    config.chmod(0o600)
    usual = [json.loads(line)["memory"] for line in run(str(SQUEEZE), "--json")[1].splitlines()]
    code, out, _ = run(str(SQUEEZE), "--json", "--config", str(config))
    assert code == 0
    assert set(usual) == {"ok"}
    assert "near_limit" in {json.loads(line)["memory"] for line in out.splitlines()} | {"critical"}
    assert any(json.loads(line)["memory"] != "ok" for line in out.splitlines())


def test_a_config_that_is_none(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "moetuned.yaml"
    config.write_text("limit: {near: 97%}\n")
    config.chmod(0o600)
    code, out, err = run(str(SQUEEZE), "--config", str(config))
    assert (code, out) == (1, "")
    assert "limit" in err


def test_seconds_too_far_apart_are_said(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(lines_of(SQUEEZE)[::10]))
    out = run(str(path))[1]
    assert out.count("after the one before: rates over more than 5 s are unknown") == 12


def test_names_from_outside_cannot_draw_on_the_terminal(tmp_path: pathlib.Path) -> None:
    lines = [json.loads(line) for line in lines_of(SQUEEZE)]
    lines[0]["backend"]["name"] = "\x1b[2J"
    for line in lines[60:]:
        line["files"] = {
            path: text if "/proc/1" not in path and "/proc/2" not in path else None
            for path, text in line["files"].items()
        }
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "\x1b" not in run(str(path))[1]
