"""Lanes: one piece of work a key, results in the loop, a hanging one holds up its own lane only."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_fakes import FakeClock

from moetuned.daemon import workers as workers_module
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide import probe_budget


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def workers(clock: FakeClock) -> Iterator[Workers]:
    workers = Workers(clock)
    yield workers
    workers.close(timeout_seconds=0.0)


def collect_until(workers: Workers, finished: list, count: int) -> None:
    while len(finished) < count:
        assert select.select([workers.fileno()], [], [], 20)[0], f"only {finished} finished"
        workers.collect()


def test_result_and_error_come_back_in_the_loops_thread(workers: Workers) -> None:
    got: list = []
    threads: list = []

    def work() -> int:
        threads.append(threading.current_thread())
        return 7

    def broken() -> None:
        raise OSError("no disk")

    def done(result: object, error: BaseException | None) -> None:
        got.append((result, str(error), threading.current_thread()))

    assert workers.submit(Lane.WORK, "good", work, done)
    assert workers.submit(Lane.PROBE, "bad", broken, done)
    collect_until(workers, got, 2)
    assert {(result, error) for result, error, _ in got} == {(7, "None"), (None, "no disk")}
    assert {thread for _, _, thread in got} == {threading.current_thread()}
    assert threads[0] is not threading.current_thread()


def test_one_in_flight_a_key_until_it_is_collected(workers: Workers) -> None:
    got: list = []
    release = threading.Event()
    assert workers.submit(Lane.WORK, "a", release.wait, lambda *each: got.append(each))
    assert not workers.submit(Lane.PROBE, "a", int, lambda *each: got.append(each))
    release.set()
    collect_until(workers, got, 1)
    assert workers.submit(Lane.WORK, "a", int, lambda *each: got.append(each))
    collect_until(workers, got, 2)


def test_work_that_hangs_holds_up_its_own_lane_only(workers: Workers) -> None:
    got: list = []
    release = threading.Event()
    workers.submit(Lane.WORK, "hangs", release.wait, lambda *_: got.append("hangs"))
    workers.submit(Lane.WORK, "behind", int, lambda *_: got.append("behind"))
    for number in range(5):
        workers.submit(Lane.PROBE, f"probe {number}", int, lambda *_: got.append("probe"))
    collect_until(workers, got, 5)
    assert got == ["probe"] * 5
    assert workers.waiting(Lane.WORK) == 2
    release.set()
    collect_until(workers, got, 7)
    assert got[5:] == ["hangs", "behind"]


def test_alerts_that_hang_hold_up_no_other_until_all_their_threads_do(workers: Workers) -> None:
    got: list = []
    release = threading.Event()
    most = workers_module.SEVERAL[Lane.ALERT]
    for number in range(most - 1):
        assert workers.submit(Lane.ALERT, f"hangs {number}", release.wait, lambda *_: got.append("hangs"))
    for number in range(3):
        assert workers.submit(Lane.ALERT, f"good {number}", int, lambda *_: got.append("good"))
    collect_until(workers, got, 3)
    assert got == ["good"] * 3
    for number in range(5):
        workers.submit(Lane.ALERT, f"more {number}", release.wait, lambda *_: got.append("more"))
    assert sum(thread.name == "lane-alert" for thread in threading.enumerate()) <= most
    release.set()
    collect_until(workers, got, 3 + most - 1 + 5)


def test_threads_of_alerts_end_when_there_is_nothing_to_do(workers: Workers) -> None:
    got: list = []
    for round_ in range(3):
        seen: list = []
        for number in range(4):
            workers.submit(
                Lane.ALERT,
                f"alert {number}",
                lambda seen=seen: seen.append(threading.current_thread()),
                lambda *_: got.append(1),
            )
        collect_until(workers, got, 4 * (round_ + 1))
        for thread in seen:
            thread.join(20)
            assert not thread.is_alive()


def test_what_is_kept_is_written_in_order(workers: Workers) -> None:
    got: list = []
    wrote: list = []
    for number in range(20):
        workers.submit(Lane.KEEP, f"{number}", lambda number=number: wrote.append(number), lambda *_: got.append(1))
    collect_until(workers, got, 20)
    assert wrote == list(range(20))


def test_without_a_thread_to_be_had_it_is_refused(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert not workers.submit(Lane.KEEP, "a", int, lambda *_: None)
    got: list = []
    assert workers.submit(Lane.KEEP, "a", int, lambda *each: got.append(each))
    collect_until(workers, got, 1)


def test_a_full_lane_refuses(workers: Workers) -> None:
    release = threading.Event()
    taken = [workers.submit(Lane.ALERT, str(number), release.wait, lambda *_: None) for number in range(100)]
    release.set()
    assert taken.count(True) == workers_module.LANE_LIMIT
    assert not any(taken[workers_module.LANE_LIMIT :])


def test_says_what_runs_for_long(workers: Workers, clock: FakeClock) -> None:
    began, release = threading.Event(), threading.Event()
    finished: list = []

    def work() -> None:
        began.set()
        release.wait()

    workers.submit(Lane.WORK, "reading", work, lambda *_: finished.append(1))
    workers.submit(Lane.WORK, "waits behind it", int, lambda *_: finished.append(2))
    assert began.wait(20)
    clock.now += 90
    assert workers.running_longer_than(60) == (("reading", 90.0),)
    assert workers.running_longer_than(120) == ()
    release.set()
    collect_until(workers, finished, 2)
    assert workers.running_longer_than(0) == ()


def test_closing_begins_nothing_that_waits(clock: FakeClock) -> None:
    workers = Workers(clock)
    began, release = threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        began.set()
        release.wait(20)

    workers.submit(Lane.WORK, "first", first, lambda *_: None)
    workers.submit(Lane.WORK, "second", lambda: ran.append("second"), lambda *_: None)
    assert began.wait(20)
    workers.close(timeout_seconds=0.0)
    assert not workers.submit(Lane.WORK, "third", int, lambda *_: None)
    release.set()
    for thread in threading.enumerate():
        if thread.name.startswith("lane-"):
            thread.join(20)
    assert ran == []


def test_closing_gives_the_pipe_back(clock: FakeClock) -> None:
    workers = Workers(clock)
    descriptor = workers.fileno()
    workers.close(timeout_seconds=20.0)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_cpu_time_is_told_by_kind(workers: Workers) -> None:
    got: list = []
    for key in ("looking at the residency of glm (1)", "looking for running backends", "something else"):
        workers.submit(Lane.WORK, key, lambda: sum(range(200_000)), lambda *each: got.append(each))
    collect_until(workers, got, 3)
    assert set(workers.budget.spent) == {"residency", "backends", "work"}
    assert all(used > 0 for used in workers.budget.spent.values())


def test_looks_at_all_processes_share_a_budget(workers: Workers, clock: FakeClock) -> None:
    got: list = []

    def submit(key: str) -> bool:
        return workers.submit(Lane.WORK, key, lambda: None, lambda *each: got.append(each))

    workers.budget = probe_budget.charge(workers.budget, "backends", 1000.0, clock.now)
    assert not submit("looking for running backends")
    assert not submit("looking at who else reads and grows")
    assert submit("looking at the residency of glm (1)")
    collect_until(workers, got, 1)
    clock.now += 1000.0 / workers.budget.share
    assert submit("looking for running backends")
    collect_until(workers, got, 2)


def test_kinds_are_of_keys_that_somebody_uses() -> None:
    source = Path(workers_module.__file__).parent
    texts = [path.read_text() for path in source.glob("*.py") if path.name != "workers.py"]
    for begin in workers_module.KINDS:
        assert any(f'"{begin}' in text for text in texts), begin
