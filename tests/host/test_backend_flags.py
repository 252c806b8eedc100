from __future__ import annotations

import os
import pathlib

import pytest
from fakes.process_end import has_ended_soon

from moetuned.host import backend_flags
from moetuned.host.backend_flags import ask_flags, find_program, run_briefly

HELP = pathlib.Path(__file__).parent.parent / "data" / "help" / "llama-server-b11434.txt"


def program(path: pathlib.Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_the_help_is_asked_once_for_each_file(tmp_path):
    log = tmp_path / "calls"
    server = program(tmp_path / "llama-server", f"echo $# $1 >> {log}; cat {HELP}")
    first = ask_flags(server)
    assert first.known is not None
    assert first.known.knows("--no-repack")
    assert ask_flags(server) == first
    assert log.read_text() == "1 --help\n"
    os.utime(server, ns=(1, 1))
    ask_flags(server)
    assert log.read_text() == "1 --help\n" * 2


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("echo hello", "not that of a llama.cpp program"),
        ("exit 3", "ended with code 3 and said nothing"),
        ("kill -9 $$", "was ended by signal 9 and said nothing"),
    ],
)
def test_what_is_no_llama_cpp_is_said(tmp_path, body: str, says: str):
    found = ask_flags(program(tmp_path / "x", body))
    assert found.known is None
    assert says in (found.unknown or "")


def test_no_program(tmp_path):
    assert "No such file" in (ask_flags(str(tmp_path / "none")).unknown or "")
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert "cannot be run" in (ask_flags(str(plain)).unknown or "")


def test_one_that_hangs_is_ended_with_its_children(tmp_path):
    pids = tmp_path / "pids"
    text, problem = run_briefly([program(tmp_path / "x", f"sleep 60 & echo $! > {pids}; wait")], 0.5, 1000)
    assert text == ""
    assert "did not answer within" in (problem or "")
    assert has_ended_soon(int(pids.read_text()))


def test_one_that_talks_without_end_is_cut_off(tmp_path):
    text, _ = run_briefly([program(tmp_path / "x", "exec yes")], 20.0, 5000)
    assert 0 < len(text) <= 5000


def test_its_own_libraries_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    text, _ = run_briefly([program(tmp_path / "x", "echo $LD_LIBRARY_PATH")], 20.0, 1000)
    assert text.strip() == f"{tmp_path}:/elsewhere"


def test_beside_the_backend_then_on_path(tmp_path, monkeypatch):
    there, path = tmp_path / "there", tmp_path / "path"
    there.mkdir()
    path.mkdir()
    program(path / "tool", "")
    monkeypatch.setenv("PATH", str(path))
    assert find_program("tool", str(there / "llama-server")) == str(path / "tool")
    program(there / "tool", "")
    assert find_program("tool", str(there / "llama-server")) == str(there / "tool")
    link = tmp_path / "link"
    link.symlink_to(there / "llama-server")
    (there / "llama-server").touch()
    assert find_program("tool", str(link)) == str(there / "tool")
    assert find_program("nothing") is None
    assert backend_flags.HELP_SECONDS > 0
