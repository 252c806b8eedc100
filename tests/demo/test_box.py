"""The demo's memory cgroup: its limit holds, it counts OOM kills, and nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import pytest
from fakes.own_cgroup import hierarchy

from moetuned.demo import box as module
from moetuned.demo.box import Box, BoxError, box
from moetuned.host.cgroup import LIMIT_FILE, joining

MIB = 1 << 20
HOLD = "import sys; memory = bytearray(int(sys.argv[1])); memory[::4096] = b'x' * len(memory[::4096]); print('has it', flush=True); sys.stdin.read()"


def holder(made: Box, size_bytes: int) -> subprocess.Popen[str]:
    command = joining(made.directory, [sys.executable, "-c", HOLD, str(size_bytes)])
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_without_root_it_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BoxError, match="needs root; run: sudo make demo"), box(MIB):
        pass


def test_without_a_hierarchy_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(module, "writable_hierarchy", lambda: None)
    with pytest.raises(BoxError, match="no writable memory cgroup hierarchy"), box(MIB):
        pass


@pytest.mark.kernel
def test_it_has_its_limit_and_nothing_is_left_of_it() -> None:
    root = hierarchy()
    with box(64 * MIB) as made:
        assert os.path.dirname(made.directory) == root.directory
        with open(f"{made.directory}/{LIMIT_FILE[made.version]}") as file:
            assert int(file.read()) == 64 * MIB
        made.limit(96 * MIB)
        with open(f"{made.directory}/{LIMIT_FILE[made.version]}") as file:
            assert int(file.read()) == 96 * MIB
        assert made.processes() == []
        with pytest.raises(BoxError, match="cannot make the cgroup"), box(MIB):
            pass
    assert not os.path.exists(made.directory)


@pytest.mark.kernel
def test_what_still_runs_in_it_is_ended_also_after_an_error() -> None:
    hierarchy()
    with contextlib.suppress(KeyboardInterrupt), box(64 * MIB) as made:
        process = holder(made, MIB)
        assert process.stdout is not None
        assert process.stdout.readline() == "has it\n"
        assert made.processes() == [process.pid]
        raise KeyboardInterrupt
    assert not os.path.exists(made.directory)
    with process:
        assert process.wait(10) == -9


@pytest.mark.kernel
def test_a_limit_below_what_is_in_use_is_an_error_or_an_oom_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """v1 refuses a limit that cannot be reached, v2 takes it and kills (memory.max in cgroup-v2.rst)."""
    hierarchy()
    with box(64 * MIB) as made, holder(made, 32 * MIB) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "has it\n"
        if made.version == 1:
            with monkeypatch.context() as patch:
                patch.setattr(time, "sleep", lambda seconds: None)
                with pytest.raises(OSError, match="busy"):
                    made.limit(4 * MIB)
            assert (process.poll(), made.oom_kills()) == (None, 0)
            process.kill()
        else:
            made.limit(4 * MIB)
            assert process.wait(30) == -9
            assert made.oom_kills() == 1


@pytest.mark.kernel
def test_an_oom_kill_is_counted() -> None:
    hierarchy()
    with box(24 * MIB) as made:
        assert made.oom_kills() == 0
        with holder(made, 64 * MIB) as process:
            assert process.wait(30) == -9
        assert made.oom_kills() == 1
