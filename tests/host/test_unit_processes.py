"""Holding the processes of one start of a unit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moetuned.host.processes import ProcessIdentity, identify
from moetuned.host.unit_processes import hold_unit
from moetuned.parse.mountinfo import parse_mountinfo

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
        held = hold_unit(who, UNIT)
        assert {each.identity.pid for each in held} == {main.pid, other.pid, below.pid}
        for each in held:
            each.close()
        assert hold_unit(who, "other.service") == []
        main.kill()
        main.wait()
        with pytest.raises(OSError, match="No such"):
            hold_unit(who, UNIT)
    finally:
        for process in (main, other, below):
            process.kill()
            process.wait()


def test_one_that_is_in_no_unit() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert hold_unit(me, "no-such-unit.service") == []
