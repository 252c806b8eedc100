from __future__ import annotations

import msgspec
import pytest
from top_scenes import squeezed

from moetuned.api.errors import DaemonError, DaemonUnreachable
from moetuned.cli.top_feed import Feed, fill
from moetuned.schema.history import Histories
from moetuned.schema.snapshot import Snapshot
from moetuned.state.history import History

READS = "process_read_bytes_per_second"


class Daemon:
    """In place of the client: its answers and what it was asked."""

    def __init__(self) -> None:
        top = squeezed()
        assert top.snapshot is not None
        self.snapshot: Snapshot = top.snapshot
        self.kept: Histories | DaemonError = top.history
        self.asked: list[str] = []

    def status(self) -> Snapshot:
        self.asked.append("status")
        return self.snapshot

    def history(self) -> Histories:
        self.asked.append("history")
        if isinstance(self.kept, DaemonError):
            raise self.kept
        return self.kept

    def later(self, seconds: float, **daemon: object) -> None:
        """As it is some time later; it reads as many bytes a second as its clock says."""
        at = self.snapshot.at_seconds + seconds
        backend = msgspec.structs.replace(self.snapshot.backends[0], signals={READS: at}, pid=42)
        told = msgspec.structs.replace(self.snapshot.daemon, **daemon)
        self.snapshot = msgspec.structs.replace(self.snapshot, at_seconds=at, backends=(backend,), daemon=told)


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def feed(daemon: Daemon) -> Feed:
    return Feed(daemon, lambda pids: (f"not {sorted(pids)}",))  # type: ignore[arg-type]


def test_a_history_that_was_told_is_the_same_when_it_is_told_again(daemon: Daemon) -> None:
    history = History()
    assert isinstance(daemon.kept, Histories)
    fill(history, daemon.kept)
    assert history.told() == daemon.kept


def test_an_empty_history_fills_nothing() -> None:
    history = History()
    fill(history, Histories())
    assert history.told() == Histories()


def test_first_what_the_daemon_kept_then_each_look(daemon: Daemon, feed: Feed) -> None:
    top = feed.look()
    assert top.snapshot is daemon.snapshot
    assert top.others == ("not [4242]",)
    assert len(top.history.backends[0].phase) == 300
    for _ in range(6):
        daemon.later(1)
        top = feed.look()
    assert top.others == ("not [42]",)
    assert top.history.at_seconds == 8006
    assert top.history.backends[0].signals[READS][-3:] == (8002.0, 8004.0, 8006.0)
    assert isinstance(daemon.kept, Histories)
    assert top.history.backends[0].signals[READS][-10:-3] == daemon.kept.backends[0].signals[READS][-7:]
    assert daemon.asked.count("history") == 1


def test_after_a_gap_the_daemon_is_asked_what_it_saw_meanwhile(daemon: Daemon, feed: Feed) -> None:
    feed.look()
    daemon.later(30)
    meanwhile = History()
    for second in range(10, 31):
        meanwhile.record(8000 + second, {"glm": ({READS: float(second)}, None)})
    daemon.kept = meanwhile.told()
    reads = feed.look().history.backends[0].signals[READS]
    assert daemon.asked.count("history") == 2
    assert reads[-16:] == (reads[-16], *(None,) * 4, *map(float, range(10, 31, 2)))
    assert reads[-16] is not None, "what was known before the gap stays"


def test_a_clock_that_went_back_is_another_machine(daemon: Daemon, feed: Feed) -> None:
    feed.look()
    daemon.later(-7000)
    daemon.kept = Histories()
    top = feed.look()
    assert (top.history.at_seconds, len(top.history.backends[0].phase)) == (1000, 1)


def test_without_a_history_it_begins_with_what_it_sees(daemon: Daemon, feed: Feed) -> None:
    daemon.kept = DaemonError("There is no '/v1/history'; GET / names the paths there are.")
    for _ in range(3):
        daemon.later(2)
        top = feed.look()
    assert top.history.backends[0].signals[READS] == (8002.0, 8004.0, 8006.0)
    assert daemon.asked.count("history") == 1


def test_a_daemon_that_is_away_is_told(daemon: Daemon, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> Snapshot:
        raise DaemonUnreachable("moetuned is not running.")

    monkeypatch.setattr(daemon, "status", away)
    with pytest.raises(DaemonUnreachable):
        feed.look()
