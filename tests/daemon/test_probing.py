"""Asking over HTTP: answers belong to the process that gave them, and connections to the probe lane."""

from __future__ import annotations

import pytest
from daemon_fakes import FakeClock, HeldWorkers

from moetuned.daemon.probing import Probing
from moetuned.daemon.watched import Watched
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.signals import Signals
from moetuned.schema.verdict import Phase, Verdict

ANSWERS = {"/health": '{"status":"ok"}'}


@pytest.fixture
def workers() -> HeldWorkers:
    return HeldWorkers()


@pytest.fixture
def probing(workers: HeldWorkers) -> Probing:
    return Probing(workers, FakeClock(50.0))


@pytest.fixture
def watched(probing: Probing) -> Watched:
    watched = Watched("glm", None, 0.0)
    watched.process = ProcessIdentity(10, 1)
    watched.url = "http://127.0.0.1:9"
    probing.aim(watched)
    return watched


def test_an_answer_is_kept_with_its_time(probing: Probing, workers: HeldWorkers, watched: Watched) -> None:
    probing.ask(watched)
    probing.ask(watched)
    assert len(workers.jobs) == 1
    workers.finish("asking", ANSWERS)
    assert (watched.http, watched.http_at) == (ANSWERS, 50.0)


def test_what_the_last_process_said_is_not_taken_for_the_next(
    probing: Probing, workers: HeldWorkers, watched: Watched
) -> None:
    probing.ask(watched)
    watched.follow_process(ProcessIdentity(11, 2), 51.0)
    workers.finish("asking", ANSWERS)
    assert watched.http == {}


def test_what_the_last_address_said_is_not_taken(probing: Probing, workers: HeldWorkers, watched: Watched) -> None:
    probing.ask(watched)
    watched.url = "http://127.0.0.1:10"
    probing.aim(watched)
    workers.finish("asking", ANSWERS)
    assert watched.http == {}


def test_connections_are_closed_in_the_probe_lane(probing: Probing, workers: HeldWorkers, watched: Watched) -> None:
    probe = watched.probe
    probing.end(watched)
    assert watched.probe is None
    (lane, _, work, _) = workers.jobs[0]
    assert lane == "probe"
    assert work == probe.close
    probing.ask(watched)
    assert len(workers.jobs) == 1


def test_without_process_or_address_nobody_is_asked(probing: Probing, workers: HeldWorkers) -> None:
    watched = Watched("glm", None, 0.0)
    probing.aim(watched)
    probing.ask(watched)
    watched.process = ProcessIdentity(10, 1)
    probing.ask(watched)
    watched.url = "http://127.0.0.1:9"
    watched.process = None
    probing.aim(watched)
    probing.ask(watched)
    assert workers.jobs == []


def test_an_address_elsewhere_is_refused_in_a_sentence(
    probing: Probing, workers: HeldWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched("glm", None, 0.0)
    watched.url = "http://192.0.2.1:80"
    probing.aim(watched)
    assert watched.probe is None
    assert "192.0.2.1" in caplog.text


def test_a_real_refusal_is_an_answer(probing: Probing, workers: HeldWorkers, watched: Watched) -> None:
    probing.ask(watched)
    workers.finish("asking", really=True)
    assert watched.http == {"/health": "!refused"}


def test_an_error_of_ours_is_logged(
    probing: Probing, workers: HeldWorkers, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    probing.ask(watched)
    workers.finish("asking", MemoryError())
    assert watched.http == {}
    assert "glm" in caplog.text


class Asked:
    """A probe that remembers how it was asked."""

    def __init__(self) -> None:
        self.idle: list[bool] = []
        self.slots_last: list[bool] = []

    def poll(self, *, idle: bool, slots_last: bool) -> dict[str, str]:
        self.idle.append(idle)
        self.slots_last.append(slots_last)
        return {}


@pytest.mark.parametrize(
    ("phase", "cpu", "expected"),
    [(Phase.IDLE, 0.0, True), (Phase.IDLE, 0.5, False), (Phase.IDLE, None, False), (Phase.DECODE, 0.0, False)],
)
def test_idle_is_who_uses_no_cpu(
    probing: Probing, workers: HeldWorkers, watched: Watched, phase: Phase, cpu: float | None, expected: bool
) -> None:
    watched.probe = asked = Asked()  # type: ignore[assignment]
    watched.verdict = Verdict("glm", 0.0, phase=phase)
    watched.signals = Signals("glm", 0.0, 1.0, {"cpu_ratio": cpu, "process_read_bytes_per_second": 0.0})
    probing.ask(watched)
    workers.finish("asking", really=True)
    assert asked.idle == [expected]


def does(watched: Watched, cpu: float) -> None:
    watched.verdict = Verdict("glm", 0.0, phase=Phase.IDLE)
    watched.signals = Signals("glm", 0.0, 1.0, {"cpu_ratio": cpu, "process_read_bytes_per_second": 0.0})


def test_one_that_does_nothing_is_asked_every_other_second(workers: HeldWorkers, watched: Watched) -> None:
    clock = FakeClock(50.0)
    probing = Probing(workers, clock)
    does(watched, 0.0)
    asked = []
    for _ in range(6):
        probing.ask(watched)
        asked.append(len(workers.jobs))
        if workers.jobs:
            workers.finish("asking", ANSWERS)
        clock.now += 1.0
    assert asked == [1, 0, 1, 0, 1, 0]
    does(watched, 0.5)
    probing.ask(watched)
    probing_again = len(workers.jobs)
    workers.finish("asking", ANSWERS)
    probing.ask(watched)
    assert (probing_again, len(workers.jobs)) == (1, 1)


def test_news_of_one_that_did_nothing_is_told_once(workers: HeldWorkers, watched: Watched) -> None:
    told: list[float] = []
    clock = FakeClock(50.0)
    probing = Probing(workers, clock, lambda: told.append(clock.now))
    does(watched, 0.0)
    for answers in (ANSWERS, ANSWERS, {**ANSWERS, "/slots": "[]"}, {**ANSWERS, "/slots": "[]"}):
        clock.now += 2.0
        probing.ask(watched)
        workers.finish("asking", answers)
    assert told == [52.0, 56.0]
    does(watched, 0.5)
    clock.now += 2.0
    probing.ask(watched)
    workers.finish("asking", ANSWERS)
    assert told == [52.0, 56.0]  # it is looked at soon anyway


class Drains:
    """A supervisor of a restart that waits; remembers what it hears."""

    draining = True

    def __init__(self) -> None:
        self.state = Supervision("glm", LaunchPlan(4096), stage=Stage.DRAINING)
        self.heard: list[tuple[int | None, float | None]] = []

    def hear(self, busy: int | None, asked_at: float | None) -> None:
        self.heard.append((busy, asked_at))


def test_a_restart_that_waits_hears_at_once_what_was_said_when_it_was_asked(
    workers: HeldWorkers, watched: Watched
) -> None:
    clock = FakeClock(50.0)
    probing = Probing(workers, clock)
    watched.probe = asked = Asked()  # type: ignore[assignment]
    watched.supervisor = drains = Drains()  # type: ignore[assignment]
    probing.ask(watched)
    workers.finish("asking", really=True)
    probing.ask(watched)
    clock.now = 50.9
    workers.finish("asking", {"/health": "{}", "/slots": '[{"id": 0, "is_processing": true}]'})
    assert asked.slots_last == [True]
    assert drains.heard == [(None, 50.0), (1, 50.0)]
    assert (watched.http_at, watched.http_asked_at) == (50.9, 50.0)
    drains.draining = False
    probing.ask(watched)
    workers.finish("asking", ANSWERS)
    assert len(drains.heard) == 2


def test_one_that_is_being_ended_is_not_asked(probing: Probing, workers: HeldWorkers, watched: Watched) -> None:
    watched.supervisor = ends = Drains()  # type: ignore[assignment]
    for stage in Stage:
        ends.state = Supervision("glm", LaunchPlan(4096), stage=stage)
        probing.ask(watched)
        assert bool(workers.jobs) == (stage is not Stage.STOPPING), stage
        workers.jobs.clear()
