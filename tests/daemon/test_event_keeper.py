"""Events on disk: written off the loop, known to the next daemon, and no harm where the disk does not take them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from daemon_fakes import HeldWorkers

from moetuned.daemon import event_keeper
from moetuned.daemon.event_keeper import EventKeeper
from moetuned.schema.event import Event, EventName
from moetuned.state import event_store

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def workers() -> HeldWorkers:
    return HeldWorkers()


def new(wall: float = 1.0) -> Event:
    return Event("", EventName.THRASH_BEGIN, wall, 1.0, "a", "a thrashes")


def open_log(workers: HeldWorkers, directory: Path, started: float = 1.0):
    return EventKeeper(workers, str(directory)).open_log(started)  # type: ignore[arg-type]


def test_the_next_daemon_knows_them(workers: HeldWorkers, tmp_path: Path) -> None:
    log = open_log(workers, tmp_path / "state")
    first = log.add(new())
    second, third = log.add(new()), log.add(new())
    workers.finish("keeping events", really=True)
    workers.finish("keeping events", really=True)
    assert workers.keys() == []
    log = open_log(workers, tmp_path / "state", 2.0)
    assert log.since(None) == [first, second, third]
    assert log.since(first.id) == [second, third], "readers go on where they were"
    fourth = log.add(new())
    assert log.since(third.id) == [fourth]
    assert fourth.id > third.id
    assert log.answer(None).file == str(tmp_path / "state" / "events.jsonl")


def test_a_disk_that_is_full_harms_nothing(
    workers: HeldWorkers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(workers, tmp_path)
    events = [log.add(new()) for _ in range(3)]
    workers.finish("keeping events", FULL)
    assert workers.keys() == [], "not again and again"
    assert "No space left" in caplog.text
    caplog.clear()
    events.append(log.add(new()))
    workers.finish("keeping events", FULL)
    assert caplog.text == ""
    events.append(log.add(new()))
    workers.finish("keeping events", really=True)
    assert event_store.read_all(str(tmp_path)) == log.since(None) == events


def test_what_cannot_be_written_is_bounded(
    workers: HeldWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_keeper, "MOST_UNWRITTEN", 3)
    log = open_log(workers, tmp_path)
    for _ in range(5):
        last = log.add(new())
        workers.finish("keeping events", FULL)
    log.add(new())
    workers.finish("keeping events", really=True)
    kept = event_store.read_all(str(tmp_path))
    assert len(kept) == 3
    assert last in kept


def test_a_file_that_cannot_be_read_is_told(
    workers: HeldWorkers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "events.jsonl").symlink_to("elsewhere")
    assert open_log(workers, tmp_path).since(None) == []
    assert str(tmp_path / "events.jsonl") in caplog.text
