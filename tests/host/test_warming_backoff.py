"""When warming holds still."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host.processes import ProcessIdentity, identify
from moetuned.host.warming_backoff import (
    FIRST_TRUST_SECONDS,
    LISTEN_SECONDS,
    LOOK_SECONDS,
    QUIET_SECONDS,
    SLOWLY_SECONDS,
    STILL_SECONDS,
    BackendGoneError,
    Backoff,
    Watch,
)

MIB = 1 << 20


class Seconds:
    """A backoff and the two counters, advanced look by look."""

    def __init__(self) -> None:
        self.backoff = Backoff()
        self.now, self.read_bytes, self.stalled_seconds, self.hits = 100.0, 0, 0.0, 0

    def pass_(
        self, seconds: float, read: float = 0, stalled: float = 0, own_stalled: float = 0, full: bool = False
    ) -> list[bool]:
        """`read` bytes a second, stalled this share of the time; `own_stalled` only while it does not hold still. `full`: its cgroup is
        at its limit.
        """
        held = []
        for _ in range(round(seconds / LOOK_SECONDS)):
            share = stalled if self.backoff.holds else max(stalled, own_stalled)
            self.now += LOOK_SECONDS
            self.read_bytes += int(read * LOOK_SECONDS)
            self.stalled_seconds += share * LOOK_SECONDS
            self.hits += full
            held.append(
                self.backoff.step(self.now, self.read_bytes, self.stalled_seconds, self.backoff.holds, self.hits)
            )
        return held


def test_quiet_counters_hold_nothing() -> None:
    assert not any(Seconds().pass_(10, read=100e3, stalled=0.01))


def test_a_backend_that_reads_is_let_go_first_at_once() -> None:
    time = Seconds()
    time.pass_(1)
    assert time.pass_(LOOK_SECONDS, read=100e6) == [True]
    assert time.backoff.reason == "the backend itself reads from the disk"
    assert all(time.pass_(3, read=4e6))


def test_it_goes_on_after_a_second_of_quiet() -> None:
    time = Seconds()
    time.pass_(1, read=100e6)
    held = time.pass_(2)
    assert held.count(True) == pytest.approx(QUIET_SECONDS / LOOK_SECONDS, abs=1)
    assert held == sorted(held, reverse=True)


def test_pressure_that_stays_while_it_listens_is_not_its_own() -> None:
    time = Seconds()
    time.pass_(1)
    held = time.pass_(1, stalled=0.3)
    assert True in held[:2]
    assert time.backoff.reason == "memory is under pressure"
    assert all(time.pass_(3, stalled=0.3))
    assert not time.pass_(2)[-1]


def test_the_reason_is_what_holds_it_now_and_not_what_began_the_pause() -> None:
    time = Seconds()
    time.pass_(1, read=100e6)
    time.pass_(QUIET_SECONDS / 2, stalled=0.3)
    assert time.backoff.reason == "the backend itself reads from the disk"
    assert all(time.pass_(2, stalled=0.3))
    assert time.backoff.reason == "memory is under pressure"
    time.pass_(LOOK_SECONDS, read=100e6, stalled=0.3)
    assert time.backoff.reason == "the backend itself reads from the disk"


def test_pressure_that_ends_with_its_own_reading_costs_little() -> None:
    time = Seconds()
    held = time.pass_(30, own_stalled=0.9)
    assert time.backoff.reason is None
    assert 0.02 < sum(held) / len(held) < 0.15


def test_it_listens_only_from_when_nothing_is_in_flight() -> None:
    time = Seconds()
    time.pass_(1)
    time.pass_(0.2, own_stalled=0.9)
    assert time.backoff.holds
    for _ in range(20):
        time.now += LOOK_SECONDS
        time.stalled_seconds += LOOK_SECONDS
        assert time.backoff.step(time.now, 0, time.stalled_seconds, False)
    assert time.backoff.reason is None
    held = time.pass_(1)
    assert held.count(True) == pytest.approx(LISTEN_SECONDS / LOOK_SECONDS, abs=1)


def test_a_stall_right_after_it_listened_is_taken_for_its_own() -> None:
    time = Seconds()
    time.pass_(0.2, own_stalled=0.9)
    while time.backoff.holds:
        time.pass_(LOOK_SECONDS)
    assert not any(time.pass_(FIRST_TRUST_SECONDS - LOOK_SECONDS, stalled=0.9))
    assert any(time.pass_(2 * LOOK_SECONDS, stalled=0.9))


def squeezed_machine() -> Seconds:
    """Others stall, on a machine whose cgroups do not tell whose stall it is; it has paused."""
    time = Seconds()
    time.backoff.machine_wide = True
    time.pass_(1)
    assert all(time.pass_(STILL_SECONDS, stalled=0.3)[4:])
    return time


def test_under_the_machines_pressure_it_goes_on_slowly_and_rests() -> None:
    """cgroup v1: anybody's thrash would otherwise keep it waiting without end."""
    time = squeezed_machine()
    held = time.pass_(2 * (STILL_SECONDS + SLOWLY_SECONDS), stalled=0.3)
    assert time.backoff.reason == "memory is under pressure"
    assert time.backoff.slowly
    assert 0.5 < held.count(False) / len(held) < 0.8
    assert not time.pass_(2)[-1]
    assert not time.backoff.slowly, "and at once when that is over"


def test_what_it_reads_slowly_is_not_taken_for_pressure_for_ever() -> None:
    time = squeezed_machine()
    time.pass_(2, stalled=0.3)
    assert time.backoff.slowly
    time.pass_(STILL_SECONDS + SLOWLY_SECONDS, own_stalled=0.3)
    assert time.backoff.reason is None or not time.backoff.slowly


@pytest.mark.parametrize("disturb", [{"read": 100e6}, {"full": True}], ids=["it reads", "its cgroup is full"])
def test_slowly_only_where_the_backend_is_in_no_need(disturb: dict[str, float]) -> None:
    time = squeezed_machine()
    assert not all(time.pass_(2, stalled=0.3))
    assert all(time.pass_(20, stalled=0.3, **disturb))
    assert not time.backoff.slowly
    assert not all(time.pass_(STILL_SECONDS + SLOWLY_SECONDS, stalled=0.3))


def test_pressure_of_the_cgroup_itself_is_waited_for() -> None:
    time = Seconds()
    time.pass_(1)
    time.pass_(1, stalled=0.3)
    assert all(time.pass_(60, stalled=0.3))


def test_whether_the_backend_works_is_told_by_its_cpu() -> None:
    backoff = Backoff()
    assert backoff.works
    looks = [(number * LOOK_SECONDS, 5.0) for number in range(10)]
    assert [backoff.step_work(now, cpu) for now, cpu in looks] == [True] * 3 + [False] * 7
    looks = [(0.5 + number * LOOK_SECONDS, 5.0 + number * LOOK_SECONDS) for number in range(4)]
    assert [backoff.step_work(now, cpu) for now, cpu in looks] == [False, False, True, True]
    assert backoff.step_work(0.7, None)


COUNTERS = st.lists(
    st.tuples(st.floats(0, 3), st.none() | st.integers(0, 1 << 40), st.none() | st.floats(0, 1e6), st.booleans()),
    max_size=40,
)


@given(COUNTERS)
def test_whatever_it_sees_it_goes_on_when_that_ends(looks: list[tuple[float, int | None, float | None, bool]]) -> None:
    backoff, now = Backoff(), 0.0
    for seconds, read, stalled, idle in looks:
        now += seconds
        assert backoff.step(now, read, stalled, idle) is backoff.holds
        assert backoff.holds or backoff.reason is None
    for _ in range(round(1.5 * QUIET_SECONDS / LOOK_SECONDS)):
        now += LOOK_SECONDS
        backoff.step(now, None, None, True)
    assert not backoff.holds


@given(COUNTERS)
def test_unknown_counters_hold_nothing(looks: list[tuple[float, int | None, float | None, bool]]) -> None:
    backoff, now = Backoff(), 0.0
    for seconds, _, _, idle in looks:
        now += seconds
        assert not backoff.step(now, None, None, idle)


@pytest.fixture
def backend() -> Iterator[ProcessIdentity]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        identity = identify(child.pid)
        assert identity is not None
        yield identity


def pressure(directory: Path, total_us: int) -> None:
    (directory / "memory.pressure").write_text(
        f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    )


def test_it_watches_the_pressure_of_the_cgroup(backend: ProcessIdentity, tmp_path: Path) -> None:
    pressure(tmp_path, 1_000_000)
    watch = Watch(backend.pid, backend.start_ticks, str(tmp_path))
    assert not watch.unwatched
    assert not watch.look(1.0, True)
    pressure(tmp_path, 1_100_000)
    assert watch.look(1.1, True)
    for now in range(20):
        pressure(tmp_path, 1_200_000 + 50_000 * now)
        watch.look(1.2 + 0.1 * now, True)
    assert watch.backoff.reason == "the cgroup's memory is under pressure"


@pytest.mark.parametrize("cgroup", [None, "/no/such/cgroup"])
def test_without_pressure_of_its_own_it_is_the_machines(
    backend: ProcessIdentity, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cgroup: str | None
) -> None:
    """A cgroup of version 1 has none."""
    real = os.open
    machine = tmp_path / "memory.pressure"
    pressure(tmp_path, 0)
    monkeypatch.setattr(
        os, "open", lambda path, flags: real(machine if path == "/proc/pressure/memory" else path, flags)
    )
    watch = Watch(backend.pid, backend.start_ticks, cgroup)
    for now in range(20):
        pressure(tmp_path, 50_000 * now)
        watch.look(1.0 + 0.1 * now, True)
    assert watch.backoff.reason == "the machine's memory is under pressure"
    assert watch.backoff.machine_wide


@pytest.mark.parametrize(
    ("name", "text"),
    [("memory.failcnt", "{}\n"), ("memory.events", "low 0\nhigh 7\nmax {}\noom 0\n")],
    ids=["version 1", "version 2 without pressure"],
)
def test_a_cgroup_at_its_limit_is_noticed(
    backend: ProcessIdentity, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str
) -> None:
    real = os.open
    cgroup, machine = tmp_path / "cgroup", tmp_path / "memory.pressure"
    cgroup.mkdir()
    pressure(tmp_path, 0)
    monkeypatch.setattr(
        os, "open", lambda path, flags: real(machine if path == "/proc/pressure/memory" else path, flags)
    )
    (cgroup / name).write_text(text.format(3))
    watch = Watch(backend.pid, backend.start_ticks, str(cgroup))
    for at, hits in enumerate([3] * 60 + list(range(4, 64))):
        pressure(tmp_path, 50_000 * at)
        (cgroup / name).write_text(text.format(hits))
        watch.look(1.0 + 0.1 * at, watch.backoff.holds)
        if at == 59:
            assert watch.backoff.slowly
    assert not watch.backoff.slowly


def test_a_process_that_is_another_is_not_watched(backend: ProcessIdentity) -> None:
    with pytest.raises(BackendGoneError, match="no longer the backend"):
        Watch(backend.pid, backend.start_ticks + 1, None)


def test_a_process_that_is_gone() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    identity = identify(child.pid)
    assert identity is not None
    watch = Watch(identity.pid, identity.start_ticks, None)
    child.communicate()
    with pytest.raises(BackendGoneError, match="has ended"):
        watch.look(1.0, True)
    with pytest.raises(BackendGoneError, match="no process"):
        Watch(identity.pid, identity.start_ticks, None)


def test_what_cannot_be_watched_is_said(backend: ProcessIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: str, flags: int) -> int:
        if path.endswith(("/io", "memory")):
            raise PermissionError(13, "Permission denied")
        return real(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    watch = Watch(backend.pid, backend.start_ticks, "/no/such/cgroup")
    assert watch.unwatched == ["what the backend reads (Permission denied)", "memory pressure (Permission denied)"]
    assert not watch.look(1.0, True)
