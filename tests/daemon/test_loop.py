"""The loop: descriptors, timers in order, signals, and nothing called after it was taken away."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Iterator

import pytest
from daemon_fakes import FakeClock

from moetuned.daemon.loop import Loop


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def loop(clock: FakeClock) -> Iterator[Loop]:
    loop = Loop(clock)
    yield loop
    loop.close()


@pytest.fixture
def pipes() -> Iterator[list[tuple[int, int]]]:
    pairs = [os.pipe() for _ in range(2)]
    yield pairs
    for pair in pairs:
        for descriptor in pair:
            os.close(descriptor)


def test_timers_run_in_order_and_not_before_their_time(loop: Loop, clock: FakeClock) -> None:
    ran: list[str] = []
    loop.call_later(2, lambda: ran.append("late"))
    loop.call_later(1, lambda: ran.append("early"))
    loop.call_at(clock.now + 1, lambda: ran.append("early, asked for second"))
    loop.run_once(0)
    assert ran == []
    clock.now += 1
    loop.run_once(0)
    assert ran == ["early", "early, asked for second"]
    clock.now += 10
    loop.run_once(0)
    assert ran[2:] == ["late"]


def test_a_timer_does_not_wait_until_all_descriptors_are_served(
    loop: Loop, clock: FakeClock, pipes: list[tuple[int, int]]
) -> None:
    order: list[str] = []

    def slow(name: str) -> None:
        order.append(name)
        clock.now += 1

    loop.call_later(0.5, lambda: order.append("timer"))
    for number, (reading, writing) in enumerate(pipes):
        os.write(writing, b"x")
        loop.add(reading, selectors.EVENT_READ, lambda _events, name=f"descriptor {number}": slow(name))
    loop.run_once(0)
    assert [name.split()[0] for name in order] == ["descriptor", "timer", "descriptor"]


def test_readable_descriptors_are_served(loop: Loop, pipes: list[tuple[int, int]]) -> None:
    got: list[bytes] = []
    loop.add(pipes[0][0], selectors.EVENT_READ, lambda _: got.append(os.read(pipes[0][0], 10)))
    loop.run_once(0)
    os.write(pipes[0][1], b"a")
    loop.run_once(0)
    assert got == [b"a"]


def test_nothing_is_called_once_it_was_removed_in_the_same_turn(loop: Loop, pipes: list[tuple[int, int]]) -> None:
    called: list[int] = []

    def serve(own: int, other: int) -> None:
        called.append(own)
        loop.remove(other)

    first, second = pipes[0][0], pipes[1][0]
    loop.add(first, selectors.EVENT_READ, lambda _: serve(first, second))
    loop.add(second, selectors.EVENT_READ, lambda _: serve(second, first))
    for _, write in pipes:
        os.write(write, b"x")
    loop.run_once(0)
    assert len(called) == 1


def test_a_descriptor_that_is_not_watched_can_be_removed(loop: Loop) -> None:
    loop.remove(12345)
    loop.remove(-1)


def test_signals_are_served_in_the_loop_once_each(loop: Loop) -> None:
    got: list[str] = []
    loop.on_signal(signal.SIGUSR1, lambda: got.append("one"))
    loop.on_signal(signal.SIGUSR2, lambda: got.append("two"))
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR2)
    assert got == []
    loop.run_once(20)
    assert got == ["one", "two"]


def test_stop_leaves_after_what_is_served(loop: Loop, clock: FakeClock) -> None:
    ran: list[str] = []

    def stop() -> None:
        loop.stop()
        ran.append("stopped")

    loop.call_later(0, stop)
    loop.call_later(0, lambda: ran.append("due as well"))
    loop.call_later(100, lambda: ran.append("not due"))
    loop.run()
    assert ran == ["stopped", "due as well"]


def test_closing_gives_signals_back(clock: FakeClock) -> None:
    loop = Loop(clock)
    loop.on_signal(signal.SIGUSR1, lambda: None)
    loop.close()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
