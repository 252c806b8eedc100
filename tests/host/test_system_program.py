from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from moetuned.host import program_search, system_program
from moetuned.host.system_program import ProgramError, ask_program, run_program


def program(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(stat.S_IRWXU)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(program_search, "DIRECTORIES", (str(tmp_path), "/usr/bin", "/bin"))
    return tmp_path


def test_a_program_that_is_missing_says_what_to_install(programs: Path) -> None:
    with pytest.raises(ProgramError, match="there is no program absent; install util-linux"):
        run_program("absent", (), "util-linux")


def test_a_program_that_fails_is_quoted_in_one_short_line(programs: Path) -> None:
    program(programs, "bad", "echo wrong >&2; echo very wrong >&2; yes x | head -c 10000 >&2; exit 3")
    with pytest.raises(ProgramError, match="bad failed with code 3: wrong very wrong x x") as caught:
        run_program("bad", (), "x")
    assert len(str(caught.value)) < 400


def test_a_program_that_hangs_is_ended(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "hangs", "exec sleep 100")
    with pytest.raises(ProgramError, match="did not end within 0 s"):
        run_program("hangs", (), "x", 0.05)
    monkeypatch.setattr(system_program, "_SECONDS", 0.05)
    with pytest.raises(ProgramError, match="did not end within"):
        run_program("hangs", (), "x")


def test_it_cannot_speak_to_the_service_manager_and_gets_no_shell(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    monkeypatch.setenv("MODPROBE_OPTIONS", "--x")
    program(programs, "tells", f'env > {programs}/environment; printf "%s\\n" "$@" > {programs}/arguments')
    run_program("tells", ("a b", "$(touch /tmp/x); *"), "x")
    names = {line.partition("=")[0] for line in (programs / "environment").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_"}, "nothing but what a shell sets itself"
    assert (programs / "arguments").read_text() == "a b\n$(touch /tmp/x); *\n"


def test_what_a_program_prints(programs: Path) -> None:
    program(programs, "tells", "printf 'a\\377\\n'; echo not this >&2; cat")
    assert ask_program("tells", (), "x", 20.0, 100) == "a\ufffd\n"


def test_a_program_that_prints_too_much_or_fails_or_hangs(programs: Path) -> None:
    program(programs, "much", "yes | head -c 100000")
    with pytest.raises(ProgramError, match="much printed more than 1000 bytes"):
        ask_program("much", (), "x", 20.0, 1000)
    program(programs, "bad", "yes | head -c 500; yes complaint | head -c 100000 >&2; exit 3")
    with pytest.raises(ProgramError, match="bad failed with code 3: complaint") as caught:
        ask_program("bad", (), "x", 20.0, 1000)
    assert len(str(caught.value)) < 400
    program(programs, "hangs", "echo a; exec sleep 100")
    with pytest.raises(ProgramError, match="hangs did not end within 0 s"):
        ask_program("hangs", (), "x", 0.05, 1000)
    with pytest.raises(ProgramError, match="there is no program absent; install x"):
        ask_program("absent", (), "x", 1.0, 1000)


def test_a_program_that_closes_its_output_and_goes_on_is_ended(programs: Path) -> None:
    program(programs, "silent", "exec sleep 100 >&- 2>&-")
    with pytest.raises(ProgramError, match="silent did not end within 0 s"):
        ask_program("silent", (), "x", 0.1, 1000)


def test_one_that_ended_and_left_something_running_is_not_waited_for(programs: Path) -> None:
    program(programs, "leaves", f"sleep 1000 & echo $! > {programs}/child; echo told")
    assert ask_program("leaves", (), "x", 20.0, 1000) == "told\n"
    os.kill(int((programs / "child").read_text()), 9)
