"""The last restarts, for people who ask."""

from __future__ import annotations

from pathlib import Path

from daemon_fakes import FakeClock

from moetuned.daemon.noted_restarts import NotedRestarts
from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.config import Backend
from moetuned.schema.supervision import RestartCause

LONG, SHORT = LaunchPlan(8192), LaunchPlan(2048)


def noted(tmp_path: Path) -> tuple[NotedRestarts, FakeClock]:
    clock = FakeClock()
    return NotedRestarts(Backend("glm"), clock, str(tmp_path)), clock


def test_how_long_it_took_is_of_the_last_one(tmp_path: Path) -> None:
    own, clock = noted(tmp_path)
    own._note_restart(RestartCause.RELIEF, "memory is short", LONG, SHORT)
    clock.now += 7
    own._note_took(SHORT)
    clock.now += 7
    own._note_took(SHORT)
    (one,) = own.restarts
    assert (one.took_seconds, one.context_before, one.context_after) == (7, 8192, 2048)
    assert (own.cause, own.restarts_by_cause) == (RestartCause.RELIEF, {"relief": 1})


def test_one_that_failed_has_no_end(tmp_path: Path) -> None:
    own, _ = noted(tmp_path)
    own._note_failure("none was begun")
    own._note_restart(RestartCause.BY_HAND, "somebody asked for it", LONG, SHORT)
    own._note_failure("its manager refused")
    own._note_took(SHORT)
    assert [(one.failed, one.took_seconds) for one in own.restarts] == [("its manager refused", None)]


def test_one_that_was_not_begun_counts_for_nothing(tmp_path: Path) -> None:
    own, _ = noted(tmp_path)
    own._note_refusal(RestartCause.BY_HAND, "somebody asked for it", LONG, "its model is not there")
    own._note_took(LONG)
    (one,) = own.restarts
    assert (one.failed, one.took_seconds, one.context_after) == ("its model is not there", None, 8192)
    assert (own.cause, own.restarts_by_cause) == (None, {})


def test_only_the_last_ones_are_kept(tmp_path: Path) -> None:
    own, _ = noted(tmp_path)
    for number in range(20):
        own._note_restart(RestartCause.EXIT, str(number), LONG, LONG)
    assert [one.why for one in own.restarts] == [str(number) for number in range(12, 20)]
    assert own.restarts_by_cause == {"exit": 20}
