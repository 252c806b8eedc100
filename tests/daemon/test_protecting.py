"""A lock on what every token needs: when it is taken, and that it is let go for memory, for another process and at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from daemon_fakes import FakeClock, FakeFollowed
from fakes.fake_kernel import Limit, Text, add_cgroups, usual_kernel

from moetuned.daemon import protecting as module
from moetuned.daemon.loop import Loop
from moetuned.daemon.protecting import Protecting
from moetuned.daemon.settings import settings_of
from moetuned.daemon.supervisor import Supervisor
from moetuned.daemon.watched import Watched
from moetuned.decide.protection import RETRY_SECONDS
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.memory_lock import LockProgress
from moetuned.host.model_files import read_model
from moetuned.host.processes import ProcessIdentity
from moetuned.host.spawn import StartError
from moetuned.schema.config import Backend, Config, Protect, Warm
from moetuned.schema.snapshot import MemoryView, WarmView
from moetuned.schema.verdict import MemoryState, Phase, Verdict

GIB = 1 << 30
ON = settings_of(Config(warm=Warm(protect=Protect.ON)))


class Rig:
    def __init__(self, model: Path) -> None:
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.protecting = Protecting(self.loop, self.clock)
        self.watched = Watched("glm", None, self.clock.now)
        self.watched.supervisor = cast("Supervisor", object())
        self.watched.follow_process(ProcessIdentity(10, 1), self.clock.now)
        self.watched.model = read_model(str(model))
        self.watched.ready_at = self.clock.now
        self.watched.memory = MemoryView("cgroup", limit_bytes=4 * GIB, headroom_bytes=3 * GIB, file_cache_bytes=GIB)
        self.watched.verdict = Verdict("glm", 0.0, phase=Phase.IDLE)
        self.mapped: tuple[str, ...] = (str(model),)
        self.locks: list[FakeFollowed] = []
        self.asked: list[dict[str, Any]] = []

    def lock_in_cgroup(self, paths, part_bytes, ranges, **options) -> FakeFollowed:
        self.asked.append({"ranges": ranges, **options})
        self.locks.append(FakeFollowed(LockProgress("locking", 0, 100)))
        return self.locks[-1]

    def tick(self, seconds: float = 11.0, **settings: object) -> None:
        self.clock.now += seconds
        self.protecting.tick(self.watched, msgspec.structs.replace(ON, **settings), self.clock.now)

    def hold(self) -> FakeFollowed:
        self.tick()
        self.locks[-1].say(LockProgress("held", 100, 100))
        self.loop.run_once(0)
        return self.locks[-1]


@pytest.fixture
def rig(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    rig = Rig(small_model)
    monkeypatch.setattr(module, "lock_in_cgroup", rig.lock_in_cgroup)
    monkeypatch.setattr(module, "mapped_models", lambda _pid: rig.mapped)
    yield rig
    rig.loop.close()
    for lock in rig.locks:
        lock.close()


def test_off_by_default(rig: Rig) -> None:
    rig.tick(protect=Protect.OFF)
    assert (rig.asked, rig.watched.protect.state) == ([], "off")


def test_locked_and_told(rig: Rig) -> None:
    rig.hold()
    assert len(rig.asked) == 1
    assert rig.asked[0]["budget_bytes"] == sum(one.length for one in rig.asked[0]["ranges"])
    assert (rig.watched.protect.state, rig.watched.protect.locked_bytes) == ("held", 100)
    assert "that every token needs is locked" in rig.watched.protect.detail
    rig.tick()
    assert len(rig.asked) == 1


def not_ready(rig: Rig) -> None:
    rig.watched.ready_at = None


def warming(rig: Rig) -> None:
    rig.watched.warm = WarmView("running")


def unmapped(rig: Rig) -> None:
    rig.mapped = ("/other.gguf",)


def unreadable(rig: Rig) -> None:
    rig.mapped = ()


def unlimited(rig: Rig) -> None:
    rig.watched.memory = MemoryView()


def no_process(rig: Rig) -> None:
    rig.watched.process = None


def only_watched(rig: Rig) -> None:
    rig.watched.supervisor = None


@pytest.mark.parametrize("arrange", [not_ready, warming, unmapped, unreadable, unlimited, no_process, only_watched])
def test_nothing_is_locked_and_it_says_why(rig: Rig, arrange) -> None:
    arrange(rig)
    rig.tick()
    assert rig.asked == []
    assert rig.watched.protect.state == "none"
    assert rig.watched.protect.detail


def test_let_go_when_memory_is_short_and_not_tried_again_soon(rig: Rig) -> None:
    lock = rig.hold()
    rig.watched.verdict = Verdict("glm", 0.0, phase=Phase.IDLE, memory=MemoryState.NEAR_LIMIT)
    rig.tick(1)
    assert lock.stopped
    lock.say(LockProgress("released", 0, 100, detail="it was told to"))
    rig.loop.run_once(0)
    assert rig.watched.protect.state == "released"
    rig.watched.verdict = Verdict("glm", 0.0, phase=Phase.IDLE)
    rig.tick(RETRY_SECONDS / 2)
    assert len(rig.asked) == 1
    rig.tick(RETRY_SECONDS)
    assert len(rig.asked) == 2


@pytest.mark.parametrize(("version", "protected", "locks"), [(2, 1 * GIB, 0), (2, 0, 1), (1, 1 * GIB, 1)])
def test_what_the_kernel_protects_in_fact_is_not_locked(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, version: int, protected: int, locks: int
) -> None:
    # Not what the config asks for: profile observe sets nothing, and systemd's MemoryLow= protects as well.
    rig.watched.config = Backend(name="glm", memory_low="1GiB")
    rig.watched.cgroup = MemoryCgroup("/sys/fs/cgroup/llama", version)
    monkeypatch.setattr(module, "protected_bytes", lambda _fs, _directory: protected)
    rig.tick()
    assert len(rig.asked) == locks


@pytest.mark.parametrize(("file", "locks"), [("memory.min", 0), ("memory.low", 1)])
def test_with_the_multi_gen_lru_memory_min_stands_in_for_a_lock(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, file: str, locks: int
) -> None:
    kernel = usual_kernel()
    add_cgroups(kernel, "moetuned.slice/glm.service")
    kernel.files["/sys/kernel/mm/lru_gen/enabled"] = Text("0x0007\n")
    for directory in ("moetuned.slice", "moetuned.slice/glm.service"):
        kernel.files[f"/sys/fs/cgroup/{directory}/{file}"] = Limit(str(GIB))
    monkeypatch.setattr(module, "RealFS", lambda: kernel)
    rig.watched.cgroup = MemoryCgroup("/sys/fs/cgroup/moetuned.slice/glm.service", 2)
    rig.tick()
    assert len(rig.asked) == locks


@pytest.mark.parametrize("change", ["process", "headroom", "off"])
def test_let_go_for_what_it_was_not_taken_for(rig: Rig, change: str) -> None:
    lock = rig.hold()
    if change == "process":
        rig.watched.process = ProcessIdentity(11, 1)
    if change == "headroom":
        rig.watched.memory = MemoryView("cgroup", limit_bytes=4 * GIB, headroom_bytes=GIB // 4, file_cache_bytes=GIB)
    rig.tick(1, protect=Protect.OFF if change == "off" else Protect.ON)
    assert lock.stopped


def test_at_the_end_it_is_ended(rig: Rig) -> None:
    lock = rig.hold()
    rig.protecting.end(rig.watched)
    assert lock.killed
    rig.protecting.end(rig.watched)


def test_a_process_that_cannot_start_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> FakeFollowed:
        raise StartError("no memory")

    monkeypatch.setattr(module, "lock_in_cgroup", refuse)
    rig.tick()
    assert (rig.watched.protect.state, rig.watched.protect.detail) == ("failed", "no memory")
