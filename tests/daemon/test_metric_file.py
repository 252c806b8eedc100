"""The metrics as a file: when it is written, what is said where it cannot be, and that it goes away."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_fakes import HeldWorkers
from prometheus_client.parser import text_string_to_metric_families
from running import daemon_process, in_process

from moetuned.daemon.metric_file import MetricFile
from moetuned.schema.config import Metrics
from moetuned.schema.snapshot import SelfView, Snapshot

SNAPSHOT = Snapshot(
    1, 1_800_000_000.0, 100.0, "observe", "observe", None, SelfView(pid=1, version="0.1.0", started_wall_seconds=0.0)
)


class Rig:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "moetuned.prom"
        self.workers = HeldWorkers()
        self.made = 0
        self.it = MetricFile(self.workers, self._snapshot)
        self.wanted = Metrics(textfile=str(self.path))

    def _snapshot(self) -> Snapshot:
        self.made += 1
        return SNAPSHOT


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_without_a_path_nothing_is_done(rig: Rig) -> None:
    rig.it.configure(Metrics())
    rig.it.tick(1000.0)
    assert (rig.workers.jobs, rig.made) == ([], 0)
    rig.it.close()


def test_it_is_written_in_a_lane_and_no_more_often_than_asked(rig: Rig) -> None:
    rig.it.configure(rig.wanted)
    rig.it.tick(1000.0)
    assert [(lane, key) for lane, key, _, _ in rig.workers.jobs] == [("work", f"writing the metrics to {rig.path}")]
    assert not rig.path.exists()
    rig.workers.finish("writing", really=True)
    assert "moetuned_snapshot_time_seconds 1.8e+09\n" in rig.path.read_text()
    for now in (1001.0, 1014.9):
        rig.it.tick(now)
    assert (rig.workers.jobs, rig.made) == ([], 1)
    rig.it.tick(1015.0)
    assert len(rig.workers.jobs) == 1


def test_one_that_hangs_is_not_asked_again(rig: Rig) -> None:
    rig.it.configure(rig.wanted)
    for now in (1000.0, 1020.0, 1040.0):
        rig.it.tick(now)
    assert len(rig.workers.jobs) == 1


def test_what_cannot_be_written_is_said_once_and_tried_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig.it.configure(rig.wanted)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(rig.path))
    for now in (1000.0, 1015.0, 1030.0):
        rig.it.tick(now)
        rig.workers.finish("writing", full)
    assert rig.it.notes == (f"metrics.textfile: {rig.path} cannot be written: No space left on device",)
    assert caplog.messages == [*rig.it.notes]
    rig.it.tick(1045.0)
    rig.workers.finish("writing", really=True)
    assert rig.it.notes == ()
    assert caplog.messages[1:] == [f"the metrics are written to {rig.path} again"]


def test_it_is_gone_at_the_end(rig: Rig) -> None:
    rig.it.configure(rig.wanted)
    rig.it.tick(1000.0)
    rig.workers.finish("writing", really=True)
    rig.it.close()
    assert not rig.path.exists()


def test_one_that_still_hangs_at_the_end_is_left(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.it.configure(rig.wanted)
    rig.it.tick(1000.0)
    rig.workers.finish("writing", really=True)
    rig.it.tick(1015.0)
    rig.it.close()
    assert rig.path.exists()
    assert caplog.messages == [f"{rig.path} is still being written and stays behind"]


@pytest.mark.parametrize("late", [False, True])
def test_another_path_takes_the_old_file_away(rig: Rig, late: bool) -> None:
    """Also one whose write was under way when the path changed."""
    rig.it.configure(rig.wanted)
    rig.it.tick(1000.0)
    if not late:
        rig.workers.finish("writing", really=True)
    other = rig.path.with_name("other.prom")
    rig.it.configure(Metrics(textfile=str(other)))
    if late:
        rig.workers.finish("writing", really=True)
    rig.it.tick(1001.0)
    assert [key for _, key, _, _ in rig.workers.jobs] == [
        f"writing the metrics to {path}" for path in (rig.path, other)
    ]
    while rig.workers.jobs:
        rig.workers.finish("writing", really=True)
    assert [each.name for each in rig.path.parent.iterdir()] == ["other.prom"]


def test_another_daemons_file_is_not_taken_away(rig: Rig) -> None:
    rig.it.configure(rig.wanted)
    rig.it.tick(1000.0)
    rig.workers.finish("writing", really=True)
    theirs = rig.path.with_name("theirs")
    theirs.write_text("theirs")
    theirs.replace(rig.path)
    rig.it.close()
    assert rig.path.read_text() == "theirs"


@pytest.mark.backend
def test_a_daemon_writes_it_and_takes_it_away(tmp_path: Path) -> None:
    path = tmp_path / "moetuned.prom"
    config = {"metrics": {"textfile": str(path), "every": "5s"}, "watch": {"discover": False, "interval": "200ms"}}
    with daemon_process(tmp_path, config) as daemon:
        daemon.until(lambda _: path.exists(), "its file")
        families = {family.name for family in text_string_to_metric_families(path.read_text())}
        assert {"moetuned_build_info", "moetuned_ticks", "moetuned_events"} <= families
        assert daemon.end() == 0
    assert not path.exists()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one page, with nothing left in it."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    directory = tmp_path / "full"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,mode=755", "moetuned-test", str(directory)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        (directory / "filler").write_bytes(bytes(4096))
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.mark.kernel
def test_a_full_disk_harms_nothing_and_is_said(tmp_path: Path, full_disk: Path) -> None:
    path = full_disk / "moetuned.prom"
    config = {"metrics": {"textfile": str(path), "every": "5s"}, "watch": {"discover": False, "interval": "200ms"}}
    with in_process(tmp_path, config) as daemon:
        snapshot = daemon.until(lambda it: it.notes, "the note")
        assert snapshot.notes == (f"metrics.textfile: {path} cannot be written: No space left on device",)
        assert [each.name for each in full_disk.iterdir()] == ["filler"]
        ticks = snapshot.daemon.ticks
        daemon.until(lambda it: it.daemon.ticks >= ticks + 3, "looks that go on")
