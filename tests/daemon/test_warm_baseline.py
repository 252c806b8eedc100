"""The warm baseline: what is kept, when it is written, and that it comes back as it was."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.daemon import warm_baseline
from moetuned.daemon.watched import Watched
from moetuned.decide import detector
from moetuned.decide.paging_evidence import Best
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.schema.verdict import Paging, Verdict
from moetuned.state.backend_record import WarmBaseline, WarmSpeed


class Owner:
    """A supervisor that only takes notes."""

    def __init__(self) -> None:
        self.state = Supervision("glm", LaunchPlan(8192), stage=Stage.READY)
        self.warm: WarmBaseline | None = None
        self.written: list[WarmBaseline] = []

    def keep_warm(self, warm: WarmBaseline) -> None:
        self.warm = warm
        self.written.append(warm)


def watched_with(*best: Best, paging: Paging = Paging.STEADY) -> tuple[Watched, Owner]:
    watched, owner = Watched("glm", None, 0.0), Owner()
    watched.supervisor = owner  # type: ignore[assignment]
    watched.detector = detector.initial("glm", best)
    watched.verdict = Verdict("glm", 0.0, paging=paging)
    return watched, owner


def test_it_is_written_when_it_changes_and_once_a_minute_at_most() -> None:
    watched, owner = watched_with(Best(1, 50.0, 0.0))
    warm_baseline.keep(watched, 10.0)
    assert owner.written == [WarmBaseline((WarmSpeed(1, 50.0, 0.0),))]
    watched.detector = detector.initial("glm", (Best(1, 90.0, 0.0),))
    warm_baseline.keep(watched, 69.0)
    assert len(owner.written) == 1
    warm_baseline.keep(watched, 70.0)
    assert owner.written[1].speeds[0].tokens_per_second == 90.0
    watched.detector = detector.initial("glm", (Best(1, 92.0, 0.0),))
    warm_baseline.keep(watched, 500.0)
    assert len(owner.written) == 2
    watched.cache_when_calm_bytes = 5 << 20
    warm_baseline.keep(watched, 501.0)
    assert owner.written[2].cache_bytes == 5 << 20


@pytest.mark.parametrize("paging", [Paging.UNKNOWN, Paging.COLD, Paging.WARMING, Paging.THRASHING])
def test_only_what_is_seen_while_it_runs_well_is_a_baseline(paging: Paging) -> None:
    watched, owner = watched_with(Best(1, 50.0, 0.0), paging=paging)
    warm_baseline.keep(watched, 10.0)
    assert owner.written == []


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.READY])
def test_nothing_is_written_for_one_that_is_not_ready(stage: Stage) -> None:
    watched, owner = watched_with(Best(1, 50.0, 0.0))
    owner.state = msgspec.structs.replace(owner.state, stage=stage)
    warm_baseline.keep(watched, 10.0)
    assert owner.written == []


def test_without_a_speed_it_waits_for_the_first_answers_and_not_for_ever() -> None:
    watched, owner = watched_with()
    watched.cache_when_calm_bytes, watched.ready_at = 5 << 20, 10.0
    warm_baseline.keep(watched, 11.0)
    assert owner.written == []
    watched.detector = detector.initial("glm", (Best(1, 50.0, 0.0),))
    warm_baseline.keep(watched, 12.0)
    assert owner.written == [WarmBaseline((WarmSpeed(1, 50.0, 0.0),), 5 << 20)]
    watched, owner = watched_with()
    watched.cache_when_calm_bytes, watched.ready_at = 5 << 20, 10.0
    warm_baseline.keep(watched, 71.0)
    assert owner.written == [WarmBaseline((), 5 << 20)]


def test_nothing_known_is_nothing_to_write() -> None:
    watched, owner = watched_with()
    warm_baseline.keep(watched, 10.0)
    watched.supervisor = None
    warm_baseline.keep(watched, 10.0)
    assert owner.written == []


def recording() -> tuple[Watched, list[WarmBaseline]]:
    """One that nobody supervises."""
    watched, written = Watched("glm", None, 0.0), list[WarmBaseline]()
    watched.record_warm = written.append
    watched.detector = detector.initial("glm", (Best(1, 50.0, 0.0),))
    watched.verdict = Verdict("glm", 0.0, paging=Paging.STEADY)
    watched.cache_when_calm_bytes = 5 << 30
    return watched, written


def test_one_that_nobody_supervises_is_recorded_too() -> None:
    watched, written = recording()
    for at in (10.0, 11.0, 75.0):
        warm_baseline.keep(watched, at)
    assert written == [WarmBaseline((WarmSpeed(1, 50.0, 0.0),), 5 << 30)]


def test_that_it_thrashes_is_written_at_once_and_that_it_ended_too() -> None:
    watched, written = recording()
    warm_baseline.keep(watched, 10.0)
    watched.cache_when_calm_bytes = 3 << 30  # it shrank for seconds before the thrash was sure
    watched.verdict = Verdict("glm", 12.0, paging=Paging.THRASHING, paging_since=12.0)
    warm_baseline.keep(watched, 12.0)
    warm_baseline.keep(watched, 13.0)
    assert written[1:] == [WarmBaseline((WarmSpeed(1, 50.0, 0.0),), 5 << 30, thrash_begun_at=12.0)]
    after = Watched("glm", None, 20.0)
    warm_baseline.restore(after, written[-1], 20.0)
    assert (after.detector.paging.paging, after.detector.paging.since) == (Paging.THRASHING, 12.0)
    assert after.facts.earlier_cache_bytes == 5 << 30
    watched.verdict = Verdict("glm", 30.0, paging=Paging.STREAMING)
    warm_baseline.keep(watched, 30.0)
    assert written[-1].thrash_begun_at is None
    warm_baseline.restore(after, written[-1], 30.0)
    assert after.detector.paging.paging is Paging.UNKNOWN


@pytest.mark.parametrize("at", [math.inf, math.nan, 21.0])
def test_a_thrash_that_begins_in_the_future_is_none(at: float) -> None:
    watched = Watched("glm", None, 0.0)
    warm_baseline.restore(watched, WarmBaseline(thrash_begun_at=at), 20.0)
    assert watched.detector.paging.paging is Paging.UNKNOWN


FIGURES = st.floats(0, 1e15) | st.just(math.inf)
BESTS = st.builds(Best, st.integers(1, 8), FIGURES, FIGURES, st.none() | FIGURES)


@given(st.lists(BESTS, max_size=8, unique_by=lambda one: one.busy_slots), st.none() | st.integers(0, 1 << 50))
def test_what_was_written_comes_back_and_can_always_be_read(best: list[Best], cache: int | None) -> None:
    watched, owner = watched_with(*best)
    watched.cache_when_calm_bytes = watched.cache_when_steady_bytes = cache
    watched.ready_at = -100.0
    warm_baseline.keep(watched, 10.0)
    read = msgspec.json.decode(msgspec.json.encode(owner.warm or WarmBaseline()), type=WarmBaseline)
    assert not warm_baseline.changed(read, owner.warm or WarmBaseline())
    after = Watched("glm", None, 0.0)
    warm_baseline.restore(after, read, 0.0)
    finite = [one for one in best if math.inf not in (one.tokens_per_second, one.bytes_per_token)]
    finite = [one for one in finite if one.missing_bytes_per_token != math.inf]
    assert after.detector.paging.best == tuple(finite)
    assert (after.facts.earlier_cache_bytes, after.cache_when_steady_bytes) == (cache, cache)


@pytest.mark.parametrize("speed", [WarmSpeed(0, 1.0, 1.0), WarmSpeed(1, -1.0, 1.0), WarmSpeed(1, 1.0, 1.0, -5.0)])
def test_figures_that_cannot_be_are_left_out(speed: WarmSpeed) -> None:
    watched = Watched("glm", None, 0.0)
    warm_baseline.restore(watched, WarmBaseline((speed,), -1, -1), 0.0)
    assert watched.detector.paging.best == ()
    assert (watched.facts.earlier_cache_bytes, watched.cache_when_steady_bytes) == (None, None)


def test_which_changes_are_worth_writing() -> None:
    one = WarmBaseline((WarmSpeed(1, 100.0, 1e6),), 1000, 1000)
    assert warm_baseline.changed(None, one)
    assert not warm_baseline.changed(None, WarmBaseline())
    assert not warm_baseline.changed(one, WarmBaseline((WarmSpeed(1, 103.0, 1e6),), 1040, 960))
    for other in (
        WarmBaseline((WarmSpeed(1, 110.0, 1e6),), 1000, 1000),
        WarmBaseline((WarmSpeed(2, 100.0, 1e6),), 1000, 1000),
        WarmBaseline((WarmSpeed(1, 100.0, 1e6, 0.0),), 1000, 1000),
        WarmBaseline((WarmSpeed(1, 100.0, 1e6),), None, 1000),
        WarmBaseline((WarmSpeed(1, 100.0, 1e6),), 1000, 900),
    ):
        assert warm_baseline.changed(one, other)
