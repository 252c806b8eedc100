"""One piece of work at a time, beside."""

from __future__ import annotations

import threading

from moetuned.host.background import Background


def test_its_result_is_taken_once() -> None:
    work: Background[int] = Background("x")
    assert work.take() is None
    assert work.start(lambda: 7)
    work.wait(10)
    assert work.take() == 7
    assert work.take() is None


def test_one_at_a_time_and_no_result_is_lost() -> None:
    work: Background[int] = Background("x")
    go = threading.Event()
    assert work.start(lambda: int(go.wait(10)))
    assert work.busy
    assert not work.start(lambda: 2)
    go.set()
    work.wait(10)
    assert not work.start(lambda: 3), "nobody took the first"
    assert work.take() == 1
    assert work.start(lambda: 4)
    work.wait(10)
    assert work.take() == 4
