"""Holding, stopping and continuing the processes of one start of a unit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.orphan_process import Orphans, is_stopped, orphan

from moetuned.host.own_processes import hold_own, let_on, stop_others
from moetuned.host.processes import ProcessHandle, ProcessIdentity, identify
from moetuned.parse.mountinfo import parse_mountinfo

__all__ = ["orphan"]

UNIT = f"moetuned-test-{os.getpid()}.service"


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """One of this name in the hierarchy that systemd uses, with one below it."""
    mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    root = next((mount.point for mount in mounts if mount.kind == "cgroup2"), None)
    if root is None or os.geteuid() != 0:
        pytest.skip("needs root and a cgroup2 hierarchy")
    directory = Path(root, UNIT)
    try:
        (directory / "below").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cannot make a cgroup ({error.strerror})")
    yield directory
    (directory / "below").rmdir()
    directory.rmdir()


def is_unit(part: str) -> bool:
    return part == UNIT


def sleeper(cgroup: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["sleep", "1000"])
    (cgroup / "cgroup.procs").write_text(str(process.pid))
    return process


def identity(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = identify(process.pid)
    assert found is not None
    return found


@pytest.mark.kernel
def test_all_in_its_cgroup_and_nothing_once_the_main_one_has_ended(cgroup: Path) -> None:
    main, other, below = sleeper(cgroup), sleeper(cgroup), sleeper(cgroup / "below")
    try:
        who = identity(main)
        held = hold_own(who, is_unit)
        assert {each.identity.pid for each in held} == {main.pid, other.pid, below.pid}
        for each in held:
            each.close()
        assert hold_own(who, lambda part: part == "other.service") == []
        main.kill()
        main.wait()
        with pytest.raises(OSError, match="No such"):
            hold_own(who, is_unit)
    finally:
        for process in (main, other, below):
            process.kill()
            process.wait()


def test_one_that_is_in_no_unit() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert hold_own(me, lambda part: part == "no-such-unit.service") == []


@pytest.mark.kernel
def test_a_cgroup_that_this_program_is_in_is_no_backends(cgroup: Path) -> None:
    main = sleeper(cgroup)
    script = (
        "import os, sys; from moetuned.host.own_processes import hold_own; from moetuned.host.processes import identify\n"
        "held = lambda: len(hold_own(identify(int(sys.argv[2])), lambda part: part == sys.argv[3]))\n"
        "before = held(); open(sys.argv[1], 'w').write(str(os.getpid())); print(before, held())"
    )
    try:
        command = [sys.executable, "-c", script, str(cgroup / "below" / "cgroup.procs"), str(main.pid), UNIT]
        said = subprocess.run(command, capture_output=True, check=True, text=True)
        assert said.stdout.split() == ["1", "0"]
    finally:
        main.kill()
        main.wait()


def handles(*identities: ProcessIdentity) -> list[ProcessHandle]:
    return [ProcessHandle(each) for each in identities]


def test_what_is_started_while_it_is_stopped_is_stopped_too(orphan: Orphans) -> None:
    main, first, second = orphan(), orphan(), orphan()
    rounds = iter([(main, first), (main, first, second), (main, first, second)])
    told: list[ProcessIdentity] = []
    stopped = stop_others(main, lambda: handles(*next(rounds)), told.append)
    assert stopped == tuple(told) == (first, second)
    assert [is_stopped(each.pid) for each in (main, first, second)] == [False, True, True]
    os.kill(first.pid, signal.SIGKILL)
    let_on((first, second, ProcessIdentity(main.pid, main.start_ticks + 1)))
    assert not is_stopped(second.pid)


def test_it_gives_up_on_what_starts_more_for_ever(orphan: Orphans) -> None:
    main = orphan()
    stopped = stop_others(main, lambda: handles(main, orphan()), lambda _identity: None)
    assert 1 < len(stopped) < 10


def test_what_nobody_would_continue_is_not_stopped(orphan: Orphans) -> None:
    main, first, second = orphan(), orphan(), orphan()

    def before(identity: ProcessIdentity) -> None:
        if identity == second:
            raise BrokenPipeError("too late")

    assert stop_others(main, lambda: handles(first, second), before) == (first,)
    assert [is_stopped(first.pid), is_stopped(second.pid)] == [True, False]


def test_this_programs_own_children_go_on(orphan: Orphans) -> None:
    main = orphan()
    with subprocess.Popen(["sleep", "1000"]) as warming:
        assert stop_others(main, lambda: handles(main, identity(warming)), lambda _identity: None) == ()
        assert not is_stopped(warming.pid)
        warming.kill()
