"""Samples of one backend as the daemon would read them, without a daemon."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.gguf_bytes import write_parts

from moetuned.host import recording as module
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.model_files import read_model
from moetuned.host.processes import ProcessIdentity
from moetuned.host.recording import RESIDENCY_SECONDS, Recording, Scanned, Subject
from moetuned.schema.sample import RawResidency

STAT = "10 (server) S 1 10 10 0 -1 4194304 1 0 0 0 5 5 0 0 20 0 1 0 100 1000 100" + " 0" * 30 + "\n"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + 1.8e9


def subject(**changes: object) -> Subject:
    given = {
        "name": "glm",
        "kind": "llama-server",
        "process": ProcessIdentity(10, 100),
        "cgroup": MemoryCgroup("/cg", 2),
    }
    return Subject(**{**given, **changes})  # type: ignore[arg-type]


def in_its_own() -> MemoryCgroup:
    """It stays where it is, whatever process 10 of this machine does."""
    return subject().cgroup


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {"/proc/10/stat": STAT, "/proc/10/io": "read_bytes: 5\n", "/cg/memory.current": "9\n"}.items():
        file = tmp_path / name.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asked() -> list[bool]:
    return []


@pytest.fixture
def recording(root: Path, clock: Clock, asked: list[bool]) -> Iterator[Recording]:
    def poll(idle: bool) -> dict[str, str]:
        asked.append(idle)
        return {"/health": str(len(asked))}

    one = Recording(subject(url="http://127.0.0.1:1"), clock, 1.0, str(root), poll=poll, where=in_its_own)
    yield one
    one.close()


def test_files_are_read_and_named_as_on_the_machine(recording: Recording) -> None:
    raw = recording.read()
    assert (raw.t, raw.wall) == (1000.0, 1000.0 + 1.8e9)
    assert raw.files["/proc/10/io"] == "read_bytes: 5\n"
    assert raw.files["/cg/memory.current"] == "9\n"
    assert raw.files["/cg/memory.max"] is None


def test_an_answer_belongs_to_the_samples_after_it_until_it_is_too_old(recording: Recording, clock: Clock) -> None:
    assert recording.read().backends["glm"].http == {}
    recording.ask()
    recording.wait()
    assert recording.read().backends["glm"].http == {"/health": "1"}
    clock.now += 4
    assert recording.read().backends["glm"].http == {"/health": "1"}
    clock.now += 0.1
    assert recording.read().backends["glm"].http == {}


def test_it_is_asked_once_more_only_when_it_has_answered(root: Path, clock: Clock) -> None:
    go, count = threading.Event(), [0]

    def poll(_idle: bool) -> dict[str, str]:
        count[0] += 1
        go.wait(10)
        return {}

    recording = Recording(subject(), clock, 1.0, str(root), poll=poll, where=in_its_own)
    recording.ask()
    recording.ask()
    go.set()
    recording.wait()
    assert count == [1]
    recording.close()


def test_whether_it_does_nothing_is_handed_on(recording: Recording, asked: list[bool]) -> None:
    recording.ask(idle=True)
    recording.wait()
    assert asked == [True]


def test_residency_is_told_once_and_looked_at_on_a_budget(root: Path, clock: Clock) -> None:
    results = [Scanned(RawResidency(3), None, 1.0), Scanned(None, "gone", 0.0)]
    scanned = threading.Semaphore(0)

    def scan() -> Scanned:
        scanned.release()
        return results.pop(0)

    recording = Recording(subject(), clock, 1.0, str(root), scan=scan, where=in_its_own)

    def ask_and_read() -> RawResidency | None:
        recording.ask()
        recording._scanning.wait(10)
        return recording.read().backends["glm"].residency

    assert ask_and_read() == RawResidency(3)
    assert recording.residency_unknown is None
    clock.now += RESIDENCY_SECONDS
    assert ask_and_read() is None
    assert len(results) == 1, "a scan that took a second of CPU is paid for by fifty without one"
    clock.now += 50
    assert ask_and_read() is None
    assert (results, recording.residency_unknown) == ([], "gone")
    recording.close()


def test_a_replaced_model_is_not_looked_at(root: Path, clock: Clock, tmp_path: Path) -> None:
    (path,) = write_parts(tmp_path, parts=1)
    scan = module._scan_of(subject(model=read_model(str(path))))
    assert scan is not None
    first = scan()
    assert first.result is not None
    assert first.result.other_cached is not None
    path.write_bytes(path.read_bytes() + b"more")
    assert scan().unknown == "its file was replaced or written since the recording began"


def test_where_nothing_is_left_to_ask_with_nothing_is_recorded(
    root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poll(*_: object, **__: object) -> dict[str, str]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(module.Probe, "poll", poll)
    made = Recording(subject(url="http://127.0.0.1:8080"), clock, root=str(root))
    made.ask()
    made.wait()
    assert made.read().backends["glm"].http == {}
    made.close()


def test_an_address_elsewhere_is_refused(clock: Clock) -> None:
    with pytest.raises(ValueError, match="no HTTP address on this machine"):
        Recording(subject(url="http://example.com"), clock)


def test_identity_and_facts_agree() -> None:
    one = subject(url="http://127.0.0.1:1", disks=("vda",))
    assert (one.identity.cgroup_directory, one.identity.start_ticks, one.identity.disks) == ("/cg", 100, ("vda",))
    assert (one.facts.disks, one.facts.address_known, one.facts.model_bytes) == (("vda",), True, None)
    assert one.facts.page_bytes == one.identity.page_bytes


def test_a_backend_that_is_moved_to_another_cgroup(root: Path, clock: Clock) -> None:
    """The old cgroup's figures are somebody else's from then on, also when it comes back: nobody saw what was charged meanwhile."""
    places = iter(["/cg", None, "/elsewhere", "/cg"])
    one = Recording(subject(), clock, 1.0, str(root), where=lambda: MemoryCgroup(next(places), 2))
    told = [one.read().files["/cg/memory.current"] for _ in range(4)]
    one.close()
    assert told == ["9\n", "9\n", None, None]
