"""Devices under models: found once, watched, judged at each start; whatever is unknown is left alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_fakes import FakeClock, HeldWorkers, no_alerts

from moetuned.daemon.announcer import Announcer
from moetuned.daemon.devices import AGAIN_SECONDS, SAVE_SECONDS, Devices, Found, find_devices
from moetuned.daemon.event_log import EventLog
from moetuned.daemon.loop import Loop
from moetuned.daemon.watched import Watched
from moetuned.host.block_devices import under_file
from moetuned.host.device_watch import DeviceEvent, DeviceWatchError
from moetuned.host.fs import RealFS
from moetuned.host.io_limits import FoundLimit
from moetuned.host.model_files import read_model
from moetuned.host.processes import ProcessIdentity
from moetuned.parse.io_limits import ReadLimit
from moetuned.schema.device import DeviceFacts
from moetuned.schema.event import EventName
from moetuned.schema.signals import Signals
from moetuned.schema.verdict import Phase, Verdict
from moetuned.state import device_rates

SSD = DeviceFacts("sda", "QVO", "sata", rotational=False, identity="wwid=1")
HDD = DeviceFacts("sdb", "ST4000", "sata", rotational=True, identity="wwid=2")


class FakeWatch:
    udev_runs = True

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.queue: list[DeviceEvent] = []
        self.closed = False

    def fileno(self) -> int:
        return self._read

    def say(self, action: str, name: str) -> None:
        self.queue.append(DeviceEvent(action, name))
        os.write(self._write, b"x")

    def events(self) -> tuple[DeviceEvent, ...]:
        os.read(self._read, 100)
        said, self.queue = tuple(self.queue), []
        return said

    def properties(self, name: str) -> dict[str, str]:
        return {}

    def close(self) -> None:
        self.closed = True
        os.close(self._read)
        os.close(self._write)


class Rig:
    def __init__(self, root: Path, model: Path) -> None:
        self.clock, self.workers, self.events = FakeClock(), HeldWorkers(), EventLog(1.0)
        self.loop, self.watch, self.watches = Loop(self.clock), FakeWatch(), 0
        self.root, self.state = root, root / "state"
        (root / "sys/block").mkdir(parents=True)
        announcer = Announcer(self.events, no_alerts(), self.clock)  # type: ignore[arg-type]
        self.devices = Devices(
            self.loop, self.clock, self.workers, announcer, RealFS(str(root)), str(self.state), self._open  # type: ignore[arg-type]
        )  # fmt: skip
        self.watched = Watched("glm", None, 0.0)
        self.watched.model = read_model(str(model))
        self.watched.follow_process(ProcessIdentity(10, 100), 0.0)
        self.refusal: str | None = None
        for name in ("sda", "sdb"):
            self.plug(name)

    def _open(self) -> FakeWatch:
        self.watches += 1
        if self.refusal is not None:
            raise DeviceWatchError(self.refusal)
        return self.watch

    def plug(self, name: str) -> None:
        (self.root / "sys/block" / name).mkdir()

    def pull(self, name: str) -> None:
        (self.root / "sys/block" / name).rmdir()

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.devices.tick([self.watched], self.clock.now)

    def found(self, *facts: DeviceFacts, network: str | None = None) -> None:
        unknown = None if facts else "it is on ZFS"
        found = Found(tuple(one.name for one in facts), facts, network, unknown)
        self.workers.finish("finding", found)
        self.tick()
        if self.workers.keys():  # once more, when there is udev's database to ask
            self.workers.finish("finding", found)
            self.tick()

    def happen(self, action: str, name: str) -> None:
        self.watch.say(action, name)
        self.loop.run_once(0)

    def messages(self) -> list[str]:
        assert all(event.name is EventName.DEVICE_UNSUITABLE for event in self.events.since(None))
        return [event.message for event in self.events.since(None)]

    def work(self, seconds: int, rate: float) -> None:
        self.watched.verdict = Verdict("glm", 0.0, phase=Phase.DECODE)
        for _ in range(seconds):
            values: dict[str, float | None] = {
                "device_read_bytes_per_second": rate,
                "device_write_bytes_per_second": 0.0,
                "device_busy_ratio": 1.0,
                "device_queue_length": 4.0,
                "device_read_ios_per_second": rate / 131072,
                "process_read_bytes_per_second": rate,
            }
            self.watched.signals = Signals("glm", self.clock.now + 1, 1.0, values)
            self.tick()


@pytest.fixture
def rig(tmp_path: Path, small_model: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, small_model)
    yield rig
    rig.devices.close()
    if not rig.watch.closed:
        rig.watch.close()
    rig.loop.close()


def test_they_are_found_once_and_shown(rig: Rig) -> None:
    rig.tick()
    rig.found(SSD)
    assert rig.watched.disks == ("sda",)
    assert [(one.name, one.model, one.gone) for one in rig.watched.devices] == [("sda", "QVO", False)]
    rig.tick(1000)
    assert rig.workers.keys() == []
    assert rig.messages() == []


def test_where_none_is_known_nothing_is_watched_and_it_looks_again_later(rig: Rig) -> None:
    rig.tick()
    rig.found()
    assert rig.watches == 0
    assert rig.messages() == []
    rig.tick(AGAIN_SECONDS)
    assert len(rig.workers.keys()) == 1


def test_a_disk_that_turns_is_told_once_a_start(rig: Rig) -> None:
    rig.tick()
    rig.found(HDD)
    rig.tick(100)
    assert len(rig.messages()) == 1
    assert rig.messages()[0].startswith("glm: its model is on a rotating disk (sdb, ST4000)")
    rig.watched.follow_process(ProcessIdentity(11, 200), rig.clock.now)
    rig.tick()
    assert len(rig.messages()) == 2
    rig.watched.forget_process(rig.clock.now)
    rig.tick()
    assert len(rig.messages()) == 2


def test_a_network(rig: Rig) -> None:
    rig.tick()
    rig.found(network="nfs4")
    assert "over the network (nfs4)" in rig.messages()[0]


def test_one_that_is_pulled_out_is_told_and_looked_for_when_one_comes(rig: Rig) -> None:
    rig.tick()
    rig.found(SSD)
    rig.pull("sda")
    rig.happen("remove", "sda")
    rig.happen("remove", "sda")
    rig.tick()
    assert [message.partition(":")[0] for message in rig.messages()] == ["glm"]
    assert "the disk sda (QVO) under its model went away" in rig.messages()[0]
    assert rig.watched.devices[0].gone
    rig.found()
    assert rig.watched.devices[0].gone, "its file system is still mounted, on nothing"
    rig.plug("sdc")
    rig.happen("add", "sdc")
    rig.tick()
    rig.found(DeviceFacts("sdc", "QVO", "sata", rotational=False, identity="wwid=1"))
    assert [(one.name, one.gone) for one in rig.watched.devices] == [("sdc", False)]
    assert rig.watched.disks == ("sdc",)


def test_others_devices_are_not_its_business(rig: Rig) -> None:
    rig.tick()
    rig.found(SSD)
    for action in ("add", "remove", "change"):
        rig.happen(action, "sdz")
    rig.tick()
    assert rig.messages() == []
    assert rig.workers.keys() == []


def test_without_udev_it_says_so_once_and_works(rig: Rig) -> None:
    rig.refusal = "libudev cannot be loaded: no such file"
    rig.tick()
    rig.found(SSD)
    assert rig.watched.disks == ("sda",)
    assert "libudev cannot be loaded" in (rig.devices.note or "")
    rig.tick(AGAIN_SECONDS)
    assert rig.watches == 1


def test_one_that_gives_far_less_than_before_is_told_also_after_a_restart_of_the_daemon(
    rig: Rig, tmp_path: Path
) -> None:
    rig.tick()
    rig.found(SSD)
    rig.work(10, 1e9)
    rig.tick(SAVE_SECONDS)
    rig.workers.finish("keeping", really=True)
    assert max(one.bytes_per_second for one in device_rates.load(str(rig.state))["wwid=1"]) == pytest.approx(1e9)
    rig.devices._rates = None
    rig.work(100, 50e6)
    assert rig.messages() == [], "first it is asked whether its cgroup holds it back"
    rig.workers.finish("limits", None)
    rig.tick()
    assert "the disk under its model is slow: sda (QVO) gave 50 MB/s" in rig.messages()[0]
    assert rig.watched.devices[0].detail.startswith("the disk under its model is slow")
    rig.work(200, 50e6)
    assert len(rig.messages()) == 1


def test_one_that_its_cgroup_holds_back_is_not_the_disks_fault(rig: Rig) -> None:
    rig.tick()
    rig.found(SSD)
    rig.work(10, 1e9)
    rig.work(100, 50e6)
    rig.workers.finish("limits", FoundLimit("/sys/fs/cgroup/glm/io.max", ReadLimit(50_000_000)))
    rig.tick()
    assert rig.messages() == []
    assert rig.watched.devices[0].detail == "its cgroup limits what it reads to 50 MB/s (/sys/fs/cgroup/glm/io.max)"


def test_what_has_no_identity_is_not_kept(rig: Rig) -> None:
    rig.tick()
    rig.found(DeviceFacts("vda", bus="virtio", virtual=True))
    rig.plug("vda")
    rig.work(10, 1e9)
    rig.devices.close()
    assert device_rates.load(str(rig.state)) == {}


def test_the_devices_of_a_real_file(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    found = find_devices(RealFS(), [str(file), str(file)], None)
    assert found.names == under_file(str(file)).names
    assert [one.name for one in found.facts] == list(found.names)
    assert (found.unknown is None) == bool(found.names)
    assert find_devices(RealFS(), [str(file), "/no/such/file"], None).names == ()
