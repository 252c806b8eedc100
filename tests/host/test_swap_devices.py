from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import swap_devices
from moetuned.host.bounded_program import Ended
from moetuned.host.outside_sandbox import Outside
from moetuned.host.swap_devices import swap_off_slowly, swap_on, wait_for_swap_off
from moetuned.host.swap_signature import SwapError


class Libc:
    """The system calls as they would be made."""

    def __init__(self) -> None:
        self.calls: list[tuple[bytes, int]] = []

    def swapon(self, path: bytes, flags: int) -> int:
        self.calls.append((path, flags))
        return 0


def test_the_priority_is_in_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = Libc()
    monkeypatch.setattr(swap_devices, "_libc", libc)
    for priority in (None, 0, 5, 32767):
        swap_on("/x", priority)
    assert libc.calls == [(b"/x", 0), (b"/x", 0x8000), (b"/x", 0x8005), (b"/x", 0xFFFF)]


@given(st.integers().filter(lambda number: not 0 <= number <= 32767))
def test_no_other_priority_reaches_the_kernel(priority: int) -> None:
    with pytest.raises(ValueError, match="is no priority"):
        swap_on("/nowhere", priority)


def start(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Swap off with a program of the test's own."""
    monkeypatch.setattr(swap_devices, "_START", program)
    monkeypatch.setattr(swap_devices, "_POLL_SECONDS", 0.02)


def test_the_answer_of_the_process_is_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, "print(0)")
    swap_off_slowly("/x")
    start(monkeypatch, "print(12)")
    with pytest.raises(OSError, match="Cannot allocate") as caught:
        swap_off_slowly("/x")
    assert caught.value.errno == errno.ENOMEM
    start(monkeypatch, "print('rubbish')")
    with pytest.raises(OSError, match="Input/output"):
        swap_off_slowly("/x")


def test_a_process_that_is_killed_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(SwapError, match="ended from outside"):
        swap_off_slowly("/x")


def slow(tmp_path: Path) -> tuple[str, Callable[[], int]]:
    """A program that says its pid and waits for ever, and how to read that."""
    place = tmp_path / "pid"
    program = f"import os, signal; open({str(place)!r}, 'w').write(str(os.getpid())); signal.pause()"
    return program, lambda: int(place.read_text())


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_progress_is_told_and_patience_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, pid = slow(tmp_path)
    start(monkeypatch, program)
    left = iter([300, None, 200])
    heard: list[int] = []
    now = iter([0.0])

    def monotonic() -> float:
        """Patience runs out once the program runs and progress was told twice."""
        return next(now, 0.0) if len(heard) < 2 or not (tmp_path / "pid").exists() else 100.0

    monkeypatch.setattr(swap_devices.time, "monotonic", monotonic)
    with pytest.raises(OSError, match="timed out"):
        swap_off_slowly("/x", lambda: next(left, 100), heard.append, patience_seconds=50)
    assert heard[:2] == [300, 200]
    assert gone(pid())


def test_what_interrupts_ends_the_process_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, pid = slow(tmp_path)
    start(monkeypatch, program)

    def used() -> int:
        if (tmp_path / "pid").exists():
            raise KeyboardInterrupt
        return 1

    with pytest.raises(KeyboardInterrupt):
        swap_off_slowly("/x", used, lambda left: None)
    assert gone(pid())


class Clock:
    """Time passes only where it is waited for."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(swap_devices, "time", made)
    return made


def test_it_waits_for_one_that_a_killed_daemon_has_left_in_the_kernel(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "swapfile"
    assert wait_for_swap_off(str(path), 0), "there is none"
    path.write_text("")
    assert wait_for_swap_off(str(path), 0)
    with open(path) as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not wait_for_swap_off(str(path), 5)
        assert clock.now >= 5
        with pytest.raises(OSError, match="busy") as caught:
            swap_off_slowly(str(path), patience_seconds=5)
        assert caught.value.errno == errno.EBUSY
    assert wait_for_swap_off(str(path), 0)


@pytest.mark.parametrize(
    ("answers", "raised"), [([22, 22, 0], None), ([22, 22], errno.EINVAL), ([22] * 9, errno.EBUSY)]
)
def test_a_swap_that_somebody_swaps_off_just_now_is_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, answers: list[int], raised: int | None
) -> None:
    """The kernel says EINVAL of one that is on: the swapoff of somebody else ends with it on, off, or not in time."""
    left = list(answers)

    def once(*_: object) -> None:
        number = left.pop(0)
        if number:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(swap_devices, "_swap_off_once", once)
    if raised is None:
        swap_off_slowly("/x", patience_seconds=5, is_on=lambda: bool(left))
    else:
        with pytest.raises(OSError, match=r"Invalid|busy") as caught:
            swap_off_slowly("/x", patience_seconds=5, is_on=lambda: bool(left))
        assert caught.value.errno == raised


class Refusing:
    """A unit whose system calls are filtered."""

    def swapon(self, path: bytes, flags: int) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1


@pytest.mark.parametrize(("said", "number"), [("0\n", 0), ("16\n", errno.EBUSY), ("rubbish", errno.EIO)])
def test_what_this_process_may_not_swap_on_one_outside_does(
    monkeypatch: pytest.MonkeyPatch, said: str, number: int
) -> None:
    ran: list[tuple[object, ...]] = []

    def run_bounded(command: tuple[str, ...], *_: object, outside: bool, **__: object) -> Ended:
        ran.append((command[-2:], outside))
        return Ended(0, False, said.encode(), False)

    monkeypatch.setattr(swap_devices, "_libc", Refusing())
    monkeypatch.setattr(swap_devices, "can_leave", lambda: True)
    monkeypatch.setattr(swap_devices, "run_bounded", run_bounded)
    with contextlib.nullcontext() if number == 0 else pytest.raises(OSError, match=os.strerror(number)):
        swap_on("/x", 5)
    assert ran == [(("/x", str(0x8005)), True)]


def test_without_a_way_out_the_kernels_answer_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_devices, "_libc", Refusing())
    monkeypatch.setattr(swap_devices, "can_leave", lambda: False)
    with pytest.raises(PermissionError):
        swap_on("/x", None)


class Elsewhere(Outside):
    """A shell script in place of systemd-run."""

    killed: list[int]
    running = False

    def signal(self, number: int) -> None:
        self.killed.append(number)

    def runs(self) -> bool:
        return self.running


def leaving(monkeypatch: pytest.MonkeyPatch, directory: Path, script: str) -> Elsewhere:
    away = Elsewhere("x.service", str(directory), ["/bin/sh", "-c", script])
    away.killed = []
    monkeypatch.setattr(swap_devices, "can_leave", lambda: True)
    monkeypatch.setattr(swap_devices, "leave", lambda *_: away)
    start(monkeypatch, f"print({errno.EPERM})")
    return away


@pytest.mark.parametrize(
    ("end", "said", "number"),
    [
        ("exited 0", "0", 0),
        ("exited 0", str(errno.ENOMEM), errno.ENOMEM),
        ("killed KILL", "", errno.ENOMEM),
        (None, "", errno.EPERM),  # no unit could be started
    ],
)
def test_what_this_process_may_not_swap_off_one_outside_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str | None, said: str, number: int
) -> None:
    left = "" if end is None else f"echo {end} >{tmp_path}/end; "
    leaving(monkeypatch, tmp_path, f"{left}echo {said}; exit {int(end != 'exited 0')}")
    if number == 0:
        swap_off_slowly("/x")
        return
    with pytest.raises(OSError, match=r"/x|OOM killer") as caught:
        swap_off_slowly("/x")
    assert caught.value.errno == number


def test_one_outside_that_takes_too_long_is_ended_there_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    away = leaving(monkeypatch, tmp_path, "exec sleep 600")
    with pytest.raises(OSError, match="timed out"):
        swap_off_slowly("/x", patience_seconds=0.5)
    assert away.killed == [9]


@pytest.mark.parametrize(
    ("end", "said", "raised"),
    [("exited 0", "0", None), (None, "0", None), ("killed KILL", "", errno.ENOMEM), ("exited 0", "16", errno.EBUSY)],
)
def test_what_goes_on_outside_when_systemd_run_is_gone_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str | None, said: str, raised: int | None
) -> None:
    """systemd-run is killed; the swap-off that it had started ends later, and what it said then counts."""
    away = leaving(monkeypatch, tmp_path, f"echo {said}; kill -9 $$")
    looks = iter([True, True, False])

    def runs() -> bool:
        going_on = next(looks)
        if not going_on and end is not None:
            (tmp_path / "end").write_text(f"{end}\n")
        return going_on

    monkeypatch.setattr(away, "runs", runs)
    heard: list[int] = []
    with contextlib.nullcontext() if raised is None else pytest.raises(OSError, match=r"/x|OOM killer") as caught:
        swap_off_slowly("/x", lambda: 4096, heard.append)
    assert raised is None or caught.value.errno == raised
    assert heard.count(4096) >= 2
    assert away.killed == []
    assert list(looks) == []


def test_what_goes_on_outside_for_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    away = leaving(monkeypatch, tmp_path, "kill -9 $$")
    away.running = True
    with pytest.raises(OSError, match="timed out"):
        swap_off_slowly("/x", patience_seconds=0.2)
    assert away.killed == [9]
