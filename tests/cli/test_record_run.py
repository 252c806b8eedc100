"""The seconds of a recording: what is written, and when it ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from moetuned.cli.record_choice import Choice
from moetuned.cli.record_run import ENDED_SECONDS, Ended, Head, head_of, run
from moetuned.host.block_devices import FileDevices
from moetuned.host.processes import ProcessIdentity, identify
from moetuned.host.recording import Subject
from moetuned.schema.sample import RawBackend, RawSample
from moetuned.state.trace import read_trace
from moetuned.state.trace_writer import TraceWriter

IDLE = {"/health": '{"status":"ok"}', "/slots": '[{"id":0,"is_processing":false}]'}


class Machine:
    """A clock and a source: the process with `pid` lives until `ends`, its counters stand still."""

    def __init__(self, name: str, pid: int, ends: float = float("inf"), late: float = 0.0) -> None:
        self.name, self.pid, self.ends, self.late, self.now = name, pid, ends, late, 0.0
        self.asked: list[bool] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def read(self) -> RawSample:
        stat = (
            None
            if self.now >= self.ends
            else f"{self.pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 1" + " 0" * 30
        )
        self.now += self.late
        return RawSample(
            self.now - self.late, self.now, {f"/proc/{self.pid}/stat": stat}, {self.name: RawBackend(IDLE)}
        )

    def ask(self, *, idle: bool = False) -> None:
        self.asked.append(idle)

    def wait(self, timeout_seconds: float = 2.0) -> None:
        pass

    def pause(self, stops: Callable[[], bool] = lambda: False) -> Callable[[float], bool]:
        def wait(seconds: float) -> bool:
            self.now += seconds
            return stops()

        return wait


@pytest.fixture
def head() -> Head:
    identity = identify(os.getpid())
    assert identity is not None
    subject = Subject("glm", "llama-server", identity, ("llama-server", "--api-key", "x"), url="http://127.0.0.1:1")
    return head_of(Choice(subject, FileDevices()), 1.0, anonymous=False)


def record(
    head: Head, machine: Machine, path: Path, *, seconds: float | None = None, interval: float = 1.0, limit: int = 1 << 20,
    pause: Callable[[float], bool] | None = None,
) -> tuple[Ended, TraceWriter]:  # fmt: skip
    writer = TraceWriter(str(path), limit)
    ended = run(head, machine, writer, machine, pause or machine.pause(), lambda *_told: None, interval, seconds)
    return ended, writer


def times(path: Path) -> list[float]:
    return [raw.t for raw in read_trace(str(path)).samples]


def test_the_head_is_redacted_and_of_this_process(head: Head) -> None:
    assert head.command == ("llama-server", "--api-key", "***")
    assert (head.told.name, head.told.pid, head.told.model) == ("glm", os.getpid(), None)
    assert head.static["/proc/version"] is None or "(" not in (head.static["/proc/version"])
    assert head.facts.address_known


def test_for_so_many_seconds_on_a_grid(head: Head, tmp_path: Path) -> None:
    machine = Machine("glm", os.getpid(), late=0.3)
    ended, _ = record(head, machine, tmp_path / "a.jsonl", seconds=5)
    assert (ended.why, ended.failed) == ("stopped", False)
    assert times(tmp_path / "a.jsonl") == pytest.approx([0, 1, 2, 3, 4, 5])


def test_a_slow_machine_gets_no_burst(head: Head, tmp_path: Path) -> None:
    machine = Machine("glm", os.getpid(), late=2.5)
    record(head, machine, tmp_path / "a.jsonl", seconds=8)
    assert times(tmp_path / "a.jsonl") == pytest.approx([0, 2.6, 5.2, 7.8])


def test_until_it_is_told_to_stop(head: Head, tmp_path: Path) -> None:
    machine = Machine("glm", os.getpid())
    ended, _ = record(head, machine, tmp_path / "a.jsonl.gz", pause=machine.pause(lambda: machine.now >= 3))
    assert ended.why == "stopped"
    assert times(tmp_path / "a.jsonl.gz") == [0, 1, 2]


def test_a_while_after_its_backend_ended(head: Head, tmp_path: Path) -> None:
    ended, _ = record(head, Machine("glm", os.getpid(), ends=4), tmp_path / "a.jsonl")
    assert ended.why == "the backend has ended"
    assert times(tmp_path / "a.jsonl")[-1] == 4 + ENDED_SECONDS


def test_until_it_is_as_large_as_it_may_be(head: Head, tmp_path: Path) -> None:
    ended, writer = record(head, Machine("glm", os.getpid()), tmp_path / "a.jsonl", limit=30_000)
    assert "largest size" in ended.why
    assert not ended.failed
    assert ended.last is not None
    assert times(tmp_path / "a.jsonl")[-1] == ended.last.t
    assert writer.size_bytes <= 30_000


def test_nothing_is_left_of_one_without_a_line(head: Head, tmp_path: Path) -> None:
    ended, _ = record(head, Machine("glm", os.getpid()), tmp_path / "a.jsonl", limit=100)
    assert ended.last is None


def test_a_full_disk_ends_it_with_what_there_is(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("glm", os.getpid())
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if machine.now >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr("moetuned.state.trace_writer.os.write", full)
    ended, _ = record(head, machine, tmp_path / "a.jsonl")
    assert ended.failed
    assert "No space left on device" in ended.why
    assert times(tmp_path / "a.jsonl") == [0, 1, 2]


def test_one_that_does_nothing_is_asked_so(head: Head, tmp_path: Path) -> None:
    machine = Machine("glm", os.getpid())
    record(head, machine, tmp_path / "a.jsonl", seconds=3)
    assert machine.asked[:2] == [False, False], "at first nobody knows"
    assert machine.asked[-1] is True


def test_one_whose_process_is_gone_has_a_head_too() -> None:
    subject = Subject("glm", "llama-server", ProcessIdentity(1 << 22, 1))
    head = head_of(Choice(subject, FileDevices()), 1.0, anonymous=True)
    assert head.told.name == "backend"
