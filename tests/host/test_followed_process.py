"""Following a process: what it says becomes progress, and its end is seen once, however it comes."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess

import msgspec
import pytest

from moetuned.host.cgroup_process import CgroupProcess
from moetuned.host.followed_process import FollowedProcess


class Step(msgspec.Struct):
    """One line of the process."""

    step: int


class Steps(FollowedProcess[Step, list[int]]):
    """Counts what it is told, in the order in which it is told."""

    def __init__(self, script: str) -> None:
        child = subprocess.Popen(
            ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        super().__init__(CgroupProcess(child, b"the plan\n"), Step, [])
        self.ends: list[int] = []

    def _take(self, line: Step) -> None:
        assert self.ends == []
        self.progress.append(line.step)

    def _end(self, code: int) -> None:
        self.ends.append(code)


def finish(steps: Steps) -> list[int]:
    while not steps.ends:
        assert select.select([steps], [], [], 30)[0]
        steps.advance()
    return steps.progress


def test_all_its_lines_come_before_its_end_and_the_end_once() -> None:
    lines = ('{"step": 1}', "no JSON", '{"step": "one"}', "[]", '{"step": 2}')
    steps = Steps(f"printf '%s\\n' {shlex.join(lines)}; exit 3")
    assert finish(steps) == [1, 2]
    assert steps.fileno() == -1
    assert steps.advance() == [1, 2]
    steps.kill()
    assert steps.ends == [3]


def test_asking_for_news_waits_for_none() -> None:
    steps = Steps("read plan; read never")
    assert steps.advance() == []
    assert steps.ends == []
    steps.kill()


def test_it_ends_when_told() -> None:
    steps = Steps("read plan; read never; echo '{\"step\": 9}'")
    steps.stop()
    assert finish(steps) == [9]
    assert steps.ends == [0]


@pytest.mark.parametrize("by_somebody", [False, True])
def test_a_kill_is_its_end(by_somebody: bool) -> None:
    steps = Steps("read plan; read never")
    if by_somebody:
        os.kill(steps.pid, signal.SIGKILL)
        finish(steps)
    steps.kill()
    assert steps.ends == [-signal.SIGKILL]
    assert not os.path.exists(f"/proc/{steps.pid}")
    steps.advance()
    assert steps.ends == [-signal.SIGKILL]
