from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.process_end import has_ended_soon
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import bounded_program
from moetuned.host.bounded_program import printable_lines, run_bounded
from moetuned.host.run_identity import Identity

PATH = {"PATH": "/usr/bin:/bin"}


def sh(script: str, seconds: float = 60, **more: object) -> bounded_program.Ended:
    return run_bounded(("/bin/sh", "-c", script), PATH, seconds, **more)  # type: ignore[arg-type]


def test_both_streams_together_or_apart() -> None:
    together = sh("echo out; echo err >&2; exit 3")
    assert (together.exit_code, together.output, together.errors) == (3, b"out\nerr\n", b"")
    apart = sh("echo out; echo err >&2", errors_apart=True)
    assert (apart.exit_code, apart.output, apart.errors) == (0, b"out\n", b"err\n")


def test_it_gets_its_environment_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "1")
    ended = run_bounded(("/usr/bin/env",), {"A": "b"}, 60)
    assert ended.output == b"A=b\n"
    assert sh("pwd").output == b"/\n"


def test_input_is_fed_whole_and_output_cut_at_the_limit() -> None:
    assert sh("wc -c", payload=b"x" * 300_000).output.split() == [b"300000"]
    ended = sh("head -c 300000 /dev/zero; echo end >&2", limit_bytes=1000, errors_apart=True)
    assert (len(ended.output), ended.cut, ended.errors, ended.exit_code) == (1000, True, b"end\n", 0)


def test_one_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_program, "TERM_SECONDS", 0.1)
    ended = sh(f"trap '' TERM; sleep 600 & echo $! >{tmp_path}/pid; wait; wait", seconds=0.5)
    assert ended.timed_out
    assert ended.exit_code is None
    assert has_ended_soon(int((tmp_path / "pid").read_text()))


def test_what_it_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    ended = sh(f"sleep 600 & echo $! >{tmp_path}/pid; echo done")
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert (ended.exit_code, ended.timed_out, ended.output) == (0, False, b"done\n")


def test_what_is_no_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_bounded((f"{tmp_path}/absent",), PATH, 1)


@given(st.binary(max_size=2000))
def test_log_lines_are_printable_and_bounded(output: bytes) -> None:
    for line in printable_lines(output):
        assert line.isprintable()
        assert len(line) <= 500


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_it_runs_as_whom_it_is_given_with_no_group_of_this_process() -> None:
    ended = sh("id -u; id -G", identity=Identity(65534, 65533, (65532,)))
    assert ended.output.split() == [b"65534", b"65533", b"65532"]
