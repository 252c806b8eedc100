from __future__ import annotations

import json
import pathlib

from click.testing import CliRunner

from moetuned.cli.replay import command

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
