"""Processes found by the word of their start."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moetuned.host.processes import ProcessIdentity, identify
from moetuned.host.started_processes import OWNER_VARIABLE, VARIABLE, find_owned, find_started, left_in_session

Start = Callable[..., subprocess.Popen[bytes]]
WAITS = [sys.executable, "-c", "print(0, flush=True); input()"]
PARENT = """
import subprocess, sys
waits = [sys.executable, "-c", "import sys; print(0, flush=True); sys.stdin.read()"]
child = subprocess.Popen(waits, stdout=subprocess.PIPE, **eval(sys.argv[1]))
child.stdout.readline()
print(child.pid, flush=True)
input()
"""
WITH_CHILD = [sys.executable, "-c", PARENT]


@pytest.fixture
def start() -> Iterator[Start]:
    started = []

    def begin(word: str, command: list[str] = WAITS, owner: str = "", **more: object) -> subprocess.Popen[bytes]:
        environ = {**os.environ, VARIABLE: word, OWNER_VARIABLE: owner}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(command, env=environ, start_new_session=True, **pipes, **more))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_it_is_found_by_its_word_only(start: Start) -> None:
    word = secrets.token_hex(16)
    assert find_started(word) == (None, ())
    process = start(word)
    process.stdout.readline()  # Right after exec its environment is not there yet.
    assert find_started(word) == (identify(process.pid), ())
    assert find_started(secrets.token_hex(16)) == (None, ())
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert find_started(word) == (None, ()), "a zombie runs no more"


def test_what_it_started_is_told_from_it(start: Start) -> None:
    word = secrets.token_hex(16)
    process = start(word, [*WITH_CHILD, "{'process_group': 0}"])
    child = int(process.stdout.readline())
    assert find_started(word) == (identify(process.pid), (identify(child),))
    process.kill()
    process.wait()
    assert find_started(word) == (None, (identify(child),))
    (left,) = left_in_session(process.pid, word)
    assert left.identity.pid == child
    assert left_in_session(process.pid, secrets.token_hex(16)) == ()
    left.send(9)
    left.close()


def test_what_left_its_session_is_not_what_it_left_there(start: Start) -> None:
    word = secrets.token_hex(16)
    process = start(word, [*WITH_CHILD, "{'start_new_session': True}"])
    child = int(process.stdout.readline())
    leader, others = find_started(word)
    assert leader == identify(process.pid), "the older one"
    assert [one.pid for one in others] == [child]
    assert left_in_session(process.pid, word) == ()
    os.kill(child, 9)


@pytest.mark.parametrize("word", ["", "x", "A" * 32, "0" * 31, "0" * 33, "0" * 32 + "\n"])
def test_what_is_no_word_finds_nothing_by_accident(word: str) -> None:
    with pytest.raises(ValueError, match="no word"):
        find_started(word)


def test_files_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    word = secrets.token_hex(16)
    for pid, stat in ((7, "7 (a) b) S 1 7 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 55 0 0"), (8, "8 (x"), (9, None)):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/environ").write_text(f"A=1\0{VARIABLE}={word}\0")
        if stat is not None:
            (tmp_path / f"proc/{pid}/stat").write_text(stat)
    (tmp_path / "proc/10").mkdir()
    assert find_started(word, str(tmp_path)) == (ProcessIdentity(7, 55), ())


def test_the_oldest_of_an_owners_is_found_and_nobody_elses(start: Start) -> None:
    owner = f"/run/test/{secrets.token_hex(8)}"
    assert find_owned(owner) is None
    first = start(secrets.token_hex(16), owner=owner)
    first.stdout.readline()
    start(secrets.token_hex(16), owner=owner).stdout.readline()
    start(secrets.token_hex(16), owner=f"{owner}x").stdout.readline()
    assert find_owned(owner) == identify(first.pid)
    assert find_owned(owner[:-1]) is None
