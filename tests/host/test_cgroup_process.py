"""Starting and following a small process, with the locking and warming processes as examples of one."""

from __future__ import annotations

import os
import select

import pytest

from moetuned.host import cgroup_process
from moetuned.host.cgroup_process import CgroupProcess, start_small, why_ended
from moetuned.host.spawn import StartError

MODULE = "moetuned.host.memory_lock_process"


def finish(process: CgroupProcess) -> list[bytes]:
    lines: list[bytes] = []
    while process.code is None:
        assert select.select([process], [], [], 30)[0]
        lines += process.lines()
    return lines


def test_its_lines_and_its_end_are_seen_and_all_is_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    process = start_small(MODULE, b"{}")
    (line,) = finish(process)
    assert b"the plan is wrong" in line
    assert process.code == 1
    assert process.fileno() == -1
    assert process.lines() == []
    assert not os.path.exists(f"/proc/{process.pid}")
    assert len(os.listdir("/proc/self/fd")) == before
    process.stop()
    process.kill()


def test_it_can_be_killed_and_is_collected() -> None:
    process = start_small(MODULE, b"{}")
    process.kill()
    assert process.code is not None
    assert process.stopped
    assert not os.path.exists(f"/proc/{process.pid}")


def test_a_plan_longer_than_a_pipe_arrives_whole() -> None:
    process = start_small(MODULE, b'{"paths": [' + b'"/x", ' * 100_000 + b'"/x"]}\n')
    (line,) = finish(process)
    assert b"KeyError" in line


def test_an_endless_line_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_process, "_LINE_LIMIT_BYTES", 4)
    process = start_small(MODULE, b"{}")
    reader, writer = os.pipe()
    own = process._output
    process._output = os.fdopen(reader, "rb", buffering=0)
    os.set_blocking(reader, False)
    os.write(writer, b"a" * 1000)
    assert process.lines() == []
    assert process._rest == b"aaaa"
    os.write(writer, b"\nnext\n")
    assert process.lines() == [b"aaaa", b"next"]
    os.close(writer)
    process._output.close()
    process._output = own
    process.kill()


def test_no_interpreter_is_a_start_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_process.sys, "executable", "/nonexistent/python")
    with pytest.raises(StartError, match="cannot start memory_lock_process"):
        start_small(MODULE, b"{}")


def test_a_kill_is_told_from_an_end_of_its_own() -> None:
    assert why_ended(-9) == "the kernel or somebody killed it"
    assert why_ended(1) == "it ended unexpectedly (code 1)"
