"""Who else did it: an event waits a moment for the names, and is told without them rather than late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from daemon_fakes import FakeClock, HeldWorkers, no_alerts
from fakes.own_cgroup import own_cgroup
from running import backend, free_port, in_process

from moetuned.daemon.announcer import Announcer
from moetuned.daemon.event_log import EventLog
from moetuned.daemon.neighbours import CPU_SHARE, EVERY_SECONDS, WAIT_SECONDS, Looked, Looker, Neighbours, neighbour
from moetuned.daemon.watched import Watched
from moetuned.decide.detector import Begun
from moetuned.decide.neighbours import Finding, Look, Person, Seen
from moetuned.host.cgroup import MemoryCgroup, joining
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.event import Event, EventName
from moetuned.schema.sample import MachineSample, MemInfo
from moetuned.schema.signals import Signals
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.verdict import MemoryState, Phase, Reason, Verdict

GIB, MIB = 1 << 30, 1 << 20
FREE = MachineSample(meminfo=MemInfo(total_bytes=32 * GIB, free_bytes=16 * GIB))
FULL = MachineSample(meminfo=MemInfo(total_bytes=32 * GIB, free_bytes=GIB // 2))
RSYNC = Person((812, 9), 812, "rsync", "backup.service", 1, frozenset({"/system.slice/backup.service"}))
FIREFOX = Person((7, 1), 7, "firefox", None, 1, frozenset({"/user.slice"}))
EVICTED = Begun(
    EventName.CACHE_EVICTED, "63 % left", (Reason("paging", "resident_ratio", 0.63, 0.25, 1.0, "63 % left"),)
)
BEGIN = Begun(
    EventName.THRASH_BEGIN, "it thrashes", (Reason("paging", "cache_lost_ratio", 0.2, 0.1, 3.0, "it shrank"),)
)


class Rig:
    def __init__(self) -> None:
        self.clock, self.workers, self.events = FakeClock(), HeldWorkers(), EventLog(1.0)
        announcer = Announcer(self.events, no_alerts(), self.clock)  # type: ignore[arg-type]
        self.neighbours = Neighbours(self.clock, self.workers, announcer)  # type: ignore[arg-type]
        self.watched = Watched("glm", None, 0.0)
        self.watched.follow_process(ProcessIdentity(10, 100), 0.0)
        self.machine = FULL

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.neighbours.tick([self.watched], self.machine, self.clock.now)

    def looked(self, *seen: Seen, cpu: float = 0.001, since: float | None = 0.0, unseen: int = 0) -> None:
        began = None if since is None else self.clock.now - 60
        self.workers.finish(
            "who else", Looked(Look(self.clock.now, self.clock.wall(), began, tuple(seen), unseen), cpu)
        )

    def tell(self, begun: Begun) -> None:
        self.neighbours.tell(self.watched, begun, self.clock.now)

    def told(self) -> list[Event]:
        return self.events.since(None)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_it_says_who_read_and_who_grew(rig: Rig) -> None:
    rig.tick()
    rig.looked(Seen(FIREFOX, anonymous_bytes=GIB), since=None)
    rig.tick(60)
    rig.looked(Seen(RSYNC, read_bytes=40 * GIB), Seen(FIREFOX, anonymous_bytes=GIB))
    rig.tick(20)
    rig.tell(EVICTED)
    assert rig.told() == []
    rig.looked(Seen(RSYNC, read_bytes=2 * GIB), Seen(FIREFOX, anonymous_bytes=7 * GIB))
    (event,) = rig.told()
    assert event.message.startswith(
        "glm: 63 % left; meanwhile rsync (pid 812, backup.service) read 42.0 GiB in the last "
    )
    assert ", and firefox (pid 7) grew 6.0 GiB since " in event.message
    assert [(one.axis, one.signal, one.value) for one in event.reasons[1:]] == [
        ("neighbours", "neighbour_read_bytes", 42 * GIB),
        ("neighbours", "neighbour_grew_bytes", 6 * GIB),
    ]
    assert [one.name for one in rig.watched.neighbours] == ["rsync", "firefox"]
    rig.tick(301)
    assert rig.watched.neighbours == ()


def test_what_it_read_before_it_was_restarted_is_not_somebody_else(rig: Rig) -> None:
    earlier = Person((10, 100), 10, "llama-server", "glm.service", 1, frozenset({"/system.slice/glm.service"}))
    other = Person((10, 300), 10, "tar", None, 1, frozenset())
    rig.tick()
    rig.looked(Seen(earlier, read_bytes=9 * GIB))
    rig.watched.follow_process(ProcessIdentity(20, 200), rig.clock.now)
    rig.tick()
    rig.tell(BEGIN)
    rig.looked(Seen(RSYNC, read_bytes=GIB), Seen(other, read_bytes=GIB))
    message = rig.told()[-1].message
    assert "rsync" in message
    assert "tar (pid 10)" in message, "the pid was given to somebody else"
    assert "llama-server" not in message


@pytest.mark.parametrize(("user", "told"), [(0, False), (1000, True)])
def test_root_is_not_told_to_become_root(rig: Rig, monkeypatch: pytest.MonkeyPatch, user: int, told: bool) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    rig.tell(EVICTED)
    rig.looked(unseen=1)
    message = rig.told()[-1].message
    assert "what 1 program read is not shown to moetuned" in message
    assert ("to root" in message) is told


def test_nobody_is_guessed(rig: Rig) -> None:
    rig.tell(EVICTED)
    rig.looked(since=None)
    assert rig.told()[-1].message == "glm: 63 % left", "one look says nothing of reads"
    rig.tell(EVICTED)
    rig.looked(Seen(RSYNC, read_bytes=MIB))
    assert "a process that has ended since" in rig.told()[-1].message
    rig.tell(EVICTED)
    rig.looked(unseen=90)
    assert "what 90 programs read is not shown" in rig.told()[-1].message
    rig.tell(BEGIN)
    rig.looked(Seen(RSYNC, read_bytes=MIB))
    assert rig.told()[-1].message == "glm: it thrashes"


def test_what_its_own_process_and_ours_read_is_no_neighbours(rig: Rig) -> None:
    rig.tell(BEGIN)
    own = Person((10, 100), 10, "llama-server")
    rig.looked(Seen(own, read_bytes=40 * GIB), Seen(msgspec.structs.replace(RSYNC, parent=10), read_bytes=40 * GIB))
    assert rig.told()[-1].message == "glm: it thrashes"


@pytest.mark.parametrize(("machine", "named"), [(FREE, False), (FULL, True), (MachineSample(), True)])
def test_nobody_outside_squeezes_a_cgroup_while_the_machine_has_memory(
    rig: Rig, machine: MachineSample, named: bool
) -> None:
    rig.watched.cgroup = MemoryCgroup("/sys/fs/cgroup/llm.slice/glm.service", 2)
    rig.watched.memory = MemoryView(scope="cgroup")
    rig.machine = machine
    rig.tick()
    rig.looked(since=None)
    rig.tell(BEGIN)
    inside = msgspec.structs.replace(RSYNC, key=(5, 5), cgroups=frozenset({"/llm.slice/glm.service"}), name="inside")
    rig.looked(Seen(RSYNC, read_bytes=9 * GIB), Seen(inside, read_bytes=8 * GIB))
    assert ("rsync" in rig.told()[-1].message) is named
    assert "inside" in rig.told()[-1].message


def test_an_event_does_not_wait_for_ever(rig: Rig) -> None:
    rig.tick()
    rig.tell(EVICTED)
    rig.tick(WAIT_SECONDS - 0.1)
    assert rig.told() == []
    rig.tick(0.2)
    assert [event.message for event in rig.told()] == ["glm: 63 % left"]
    rig.looked(Seen(RSYNC, read_bytes=40 * GIB))
    assert len(rig.told()) == 1


def test_events_of_a_backend_keep_their_order(rig: Rig) -> None:
    rig.tell(BEGIN)
    rig.tell(Begun(EventName.THRASH_END, "over"))
    assert [event.name for event in rig.told()] == [EventName.THRASH_BEGIN, EventName.THRASH_END]
    rig.tell(EVICTED)
    rig.tell(Begun(EventName.MEMORY_RECOVERED, "enough"))
    assert rig.told()[-1].name is EventName.MEMORY_RECOVERED, "which does not end the wait"
    rig.neighbours.flush()
    assert rig.told()[-1].name is EventName.CACHE_EVICTED


HOG = Person((55, 5), 55, "hog", None, 1, frozenset({"/llm.slice/hog.service"}))
NEAR = Begun(
    EventName.MEMORY_NEAR_LIMIT,
    "memory nears its limit",
    (Reason("memory", "headroom_bytes", 1.0, 2.0, 1.0, "1 of 2"),),
)


def hog_grows(rig: Rig) -> None:
    """Two looks: it grew, and others read."""
    rig.tick()
    rig.looked(Seen(HOG, anonymous_bytes=GIB), Seen(FIREFOX, anonymous_bytes=GIB))
    rig.tick(30)
    rig.looked(
        Seen(HOG, anonymous_bytes=3 * GIB), Seen(FIREFOX, anonymous_bytes=4 * GIB), Seen(RSYNC, read_bytes=40 * GIB)
    )


def near(rig: Rig, memory: MemoryState = MemoryState.NEAR_LIMIT, seconds: float | None = 20.0) -> None:
    rig.watched.verdict = Verdict("glm", 0.0, memory=memory)
    rig.watched.memory = MemoryView("cgroup", seconds_to_limit=seconds)
    rig.watched.cgroup = MemoryCgroup(
        "/sys/fs/cgroup/llm.slice/glm.service", 2, limited_above=("/sys/fs/cgroup/llm.slice",)
    )


@pytest.mark.parametrize("machine", [FREE, FULL])
def test_who_grew_within_the_limit_that_is_near_is_named(rig: Rig, machine: MachineSample) -> None:
    rig.machine = machine
    hog_grows(rig)
    near(rig)
    rig.tell(NEAR)
    assert rig.told() == []
    rig.looked(Seen(HOG, anonymous_bytes=5 * GIB), Seen(FIREFOX, anonymous_bytes=9 * GIB))
    (event,) = rig.told()
    assert event.message.startswith("glm: memory nears its limit; meanwhile hog (pid 55) grew 4.0 GiB since ")
    assert "rsync" not in event.message, "page cache is given back"
    assert "firefox" not in event.message, "it is outside of that limit"
    assert event.reasons[-1].signal == "neighbour_grew_bytes"


def test_without_one_that_grew_it_is_told_as_it_is(rig: Rig) -> None:
    near(rig)
    rig.tell(NEAR)
    rig.looked(Seen(RSYNC, read_bytes=GIB))
    assert [event.message for event in rig.told()] == ["glm: memory nears its limit"]


@pytest.mark.parametrize(("memory", "seconds"), [(MemoryState.CRITICAL, None), (MemoryState.NEAR_LIMIT, 9.0)])
def test_what_is_urgent_is_told_at_once_with_who_is_known(rig: Rig, memory: MemoryState, seconds: float | None) -> None:
    hog_grows(rig)
    near(rig, memory, seconds)
    rig.tell(NEAR)
    (event,) = rig.told()
    assert "hog (pid 55) grew 2.0 GiB" in event.message
    assert not rig.neighbours.waiting


def test_what_becomes_urgent_waits_no_longer(rig: Rig) -> None:
    hog_grows(rig)
    near(rig)
    rig.tell(NEAR)
    near(rig, MemoryState.CRITICAL)
    rig.tick(0.5)
    assert "hog (pid 55) grew" in rig.told()[-1].message


def test_memory_is_told_in_order_and_apart_from_paging(rig: Rig) -> None:
    near(rig)
    rig.tell(NEAR)
    rig.tell(Begun(EventName.THRASH_END, "over", ()))
    assert [event.name for event in rig.told()] == ["thrash_end"]
    rig.tell(Begun(EventName.MEMORY_RECOVERED, "enough", ()))
    assert [event.name for event in rig.told()] == ["thrash_end", "memory_near_limit", "memory_recovered"]
    rig.tell(NEAR)
    rig.neighbours.settle(rig.watched)
    assert [event.name for event in rig.told()][-1] == "memory_near_limit"


def test_a_look_that_fails_is_told_as_nothing(rig: Rig) -> None:
    rig.tell(EVICTED)
    rig.workers.finish("who else", OSError(2, "no /proc"))
    assert [event.message for event in rig.told()] == ["glm: 63 % left"]


def test_looks_are_seldom_and_seldomer_when_they_are_dear(rig: Rig) -> None:
    rig.tick()
    rig.looked(cpu=0.001)
    rig.tick(EVERY_SECONDS - 1)
    assert rig.workers.keys() == []
    rig.tick(1)
    rig.looked(cpu=0.100)
    rig.tick(0.100 / CPU_SHARE - 1)
    assert rig.workers.keys() == []
    rig.tick(1)
    assert len(rig.workers.keys()) == 1


def test_without_a_running_backend_nobody_looks(rig: Rig) -> None:
    rig.watched.forget_process(rig.clock.now)
    rig.tick()
    assert rig.workers.keys() == []


def test_when_others_use_its_disk_while_it_works_they_are_shown(rig: Rig) -> None:
    rig.tick()
    rig.looked(since=None)
    rig.watched.verdict = Verdict("glm", 0.0, phase=Phase.DECODE)
    rig.watched.signals = Signals(
        "glm", 0.0, 1.0, {"device_read_bytes_per_second": 900e6, "process_read_bytes_per_second": 10e6}
    )
    rig.tick(2)
    rig.looked(Seen(RSYNC, read_bytes=GIB))
    assert [one.name for one in rig.watched.neighbours] == ["rsync"]
    assert rig.told() == []
    rig.tick(10)
    assert rig.workers.keys() == [], "not again within a minute"


def test_a_name_as_it_is_shown() -> None:
    ended = Finding(Person((0, 0), None, "processes that have ended since"), "read", GIB, 90)
    assert neighbour(ended, 0).text == "processes that have ended since read 1.0 GiB in the last 1 min 30 s"


def test_a_real_look_finds_this_process(tmp_path: Path) -> None:
    looked = Looker(FakeClock()).look()
    assert looked.look.since_seconds is None
    assert looked.cpu_seconds >= 0
    assert any(seen.anonymous_bytes for seen in looked.look.seen)


# With real programs

LIMIT_BYTES = 160 * MIB
WATCH = {"watch": {"discover": False, "interval": "200ms"}, "warm": {"enabled": False}}


def drop(path: Path) -> None:
    """Out of the page cache: who touches it first is charged for it."""
    subprocess.run(["sync", str(path)], check=True)
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def cgroup() -> Iterator[str]:
    with own_cgroup(LIMIT_BYTES) as directory:
        yield directory


@pytest.mark.kernel
@pytest.mark.backend
def test_who_pushed_an_idle_backends_model_out_is_named(tmp_path: Path, small_model: Path, cgroup: str) -> None:
    large = tmp_path / "backup.img"
    with large.open("wb") as file:
        for _ in range(64):
            file.write(b"x" * (8 * MIB))
    drop(large)
    drop(small_model)
    entry = backend("glm", small_model, free_port(), cgroup=cgroup)
    with in_process(tmp_path, {**WATCH, "backends": [entry]}) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: daemon.view("glm").residency.resident_bytes, "its residency")
        daemon.until(lambda _: len(daemon.app._neighbours._looks) > 0, "the first look")
        # Not a child of the daemon, which is this process: those are its own.
        command = ["/bin/sh", "-c", '"$@" & wait', "sh", *joining(cgroup, [sys.executable, "-c", _READ, str(large)])]
        reading = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert reading.stdout is not None
        pid = int(reading.stdout.readline())
        try:
            daemon.until(lambda _: _again(daemon) or "cache_evicted" in daemon.event_names(), "it is told")
        finally:
            os.kill(pid, signal.SIGKILL)
            reading.communicate()
        (event,) = [event for event in daemon.snapshot.events if event.name == "cache_evicted"]
    assert f"(pid {pid}" in event.message
    assert "read " in event.message


def _again(daemon: object) -> bool:
    """Residency is asked for seldom; the test does not wait for it."""
    watched = daemon.app._roster.get("glm")  # type: ignore[attr-defined]
    watched.next_residency = min(watched.next_residency, 0.0)
    return False


_READ = """
import os, signal, sys
print(os.getpid(), flush=True)
for _ in range(3):
    with open(sys.argv[1], "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
signal.pause()
"""


_GROW = """
import os, signal, sys
print(os.getpid(), flush=True)
held, directory, until = [], sys.argv[1], int(sys.argv[2])
def anonymous():
    lines = dict(line.split() for line in open(directory + "/memory.stat"))
    return int(lines.get("anon", lines.get("rss", 0)))
while anonymous() < until:
    held.append(b"x" * (1 << 20))
signal.pause()
"""


@pytest.mark.kernel
@pytest.mark.backend
def test_a_hog_that_pushed_it_out_is_named(tmp_path: Path, small_model: Path) -> None:
    drop(small_model)
    with own_cgroup(LIMIT_BYTES + 8 * MIB) as cgroup:
        entry = backend("glm", small_model, free_port(), cgroup=cgroup)
        entry["context"] = {"preferred": 1024, "minimum": 1024}
        with in_process(tmp_path, {**WATCH, "backends": [entry]}) as daemon:
            daemon.until(daemon.phase_is("glm", "idle"), "ready")
            daemon.until(lambda _: daemon.view("glm").residency.resident_bytes, "its residency")
            daemon.until(lambda _: len(daemon.app._neighbours._looks) > 0, "the first look")
            grow = [sys.executable, "-c", _GROW, cgroup, str(LIMIT_BYTES + 8 * MIB - 18 * MIB)]
            command = ["/bin/sh", "-c", '"$@" & wait', "sh", *joining(cgroup, grow)]
            hog = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert hog.stdout is not None
            pid = int(hog.stdout.readline())
            try:
                daemon.until(lambda _: _again(daemon) or "cache_evicted" in daemon.event_names(), "it is told")
            finally:
                os.kill(pid, signal.SIGKILL)
                hog.communicate()
            (event,) = [event for event in daemon.snapshot.events if event.name == "cache_evicted"]
    assert f"(pid {pid}) grew " in event.message, event.message
