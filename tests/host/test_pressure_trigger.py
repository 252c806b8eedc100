"""PSI triggers: what the kernel is told, what it says when there can be none, and that a squeeze really wakes a selector."""

from __future__ import annotations

import errno
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.cold_file import MIB, make_cold_file
from fakes.own_cgroup import hierarchy, own_cgroup

from moetuned.host.cgroup import add_process
from moetuned.host.pressure_trigger import CGROUP_FILE, MACHINE_FILE, PressureTrigger, TriggerError

SQUEEZE = """
import mmap, os, random, sys
file = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(file).st_size
view = mmap.mmap(file, size, prot=mmap.PROT_READ)
view.madvise(mmap.MADV_RANDOM)
pages = list(range(0, size, mmap.PAGESIZE))
print("ready", flush=True)
sys.stdin.readline()
while True:
    random.shuffle(pages)
    for page in pages:
        view[page]
"""
WAIT_SECONDS = 120.0
"""Only ends a test that would otherwise hang."""


def refuse(number: int, *, while_window: int | None = None) -> tuple[list[bytes], Callable[[int, bytes], int]]:
    written: list[bytes] = []

    def write(_descriptor: int, data: bytes) -> int:
        written.append(data)
        if while_window is None or str(while_window).encode() in data:
            raise OSError(number, os.strerror(number))
        return len(data)

    return written, write


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EPERM])
def test_windows_are_tried_shortest_first(tmp_path: Path, number: int) -> None:
    path = tmp_path / "memory"
    path.write_text("")
    before = open_descriptors()
    written, write = refuse(number)
    with pytest.raises(TriggerError, match=r"memory: ") as caught:
        PressureTrigger(str(path), write)
    assert written == [b"some 50000 1000000\0", b"some 100000 2000000\0"]
    assert caught.value.errno == number
    assert open_descriptors() == before


def test_a_window_that_is_refused_gives_way_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    path.write_text("")
    before = open_descriptors()
    written, write = refuse(errno.EINVAL, while_window=1_000_000)
    with pytest.raises(TriggerError) as caught:  # a plain file cannot be waited for
        PressureTrigger(str(path), write)
    assert len(written) == 2
    assert caught.value.errno == errno.EPERM
    assert open_descriptors() == before


def test_where_there_is_no_psi_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(TriggerError, match="no PSI"):
        PressureTrigger(str(tmp_path / "memory"))
    path = tmp_path / "switched_off"
    path.write_text("")
    written, write = refuse(errno.EOPNOTSUPP)
    with pytest.raises(TriggerError, match="psi=1"):
        PressureTrigger(str(path), write)
    assert len(written) == 1


def made(path: str) -> PressureTrigger:
    try:
        return PressureTrigger(path)
    except TriggerError as error:
        pytest.skip(str(error))


@pytest.mark.kernel
def test_closing_twice_gives_everything_back_once() -> None:
    before = open_descriptors()
    trigger = made(MACHINE_FILE)
    assert trigger.window_seconds in (1.0, 2.0)
    trigger.close()
    trigger.close()
    assert open_descriptors() == before


def squeezed(trigger: PressureTrigger, cgroup: str, file: str) -> float:
    """Seconds until the selector says that the trigger is readable, once a process re-reads a file larger than its cgroup."""
    child = subprocess.Popen(
        [sys.executable, "-c", SQUEEZE, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        add_process(cgroup, child.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(trigger.fileno(), selectors.EVENT_READ)
            begun = time.monotonic()
            child.stdin.write("go\n")
            child.stdin.flush()
            assert selector.select(WAIT_SECONDS), "nothing was told"
            return time.monotonic() - begun
    finally:
        child.kill()
        child.wait()


@pytest.mark.kernel
def test_a_squeeze_wakes_a_selector(tmp_path: Path) -> None:
    file = make_cold_file(tmp_path / "model", 96 * MIB)
    with own_cgroup(40 * MIB) as cgroup:
        path = f"{cgroup}/{CGROUP_FILE}" if hierarchy().version == 2 else MACHINE_FILE
        trigger = made(path)
        try:
            print(f"{path}, window {trigger.window_seconds} s: told after {squeezed(trigger, cgroup, file):.2f} s")
            assert not trigger.is_gone()
        finally:
            trigger.close()


@pytest.mark.kernel
def test_a_removed_cgroup_is_told_as_gone() -> None:
    if hierarchy().version != 2:
        pytest.skip("cgroup v1 has no pressure of its own")
    with own_cgroup() as cgroup:
        trigger = made(f"{cgroup}/{CGROUP_FILE}")
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(trigger.fileno(), selectors.EVENT_READ)
            assert selector.select(WAIT_SECONDS), "nothing was told"
            assert trigger.is_gone()
            assert selector.select(0), "it stays readable"
        with pytest.raises(TriggerError):
            PressureTrigger(trigger.path)
    finally:
        trigger.close()
