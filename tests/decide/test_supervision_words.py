"""What is said of a backend while it does not answer, or is about to stop answering."""

from __future__ import annotations

import pytest

from moetuned.decide import supervision as sv
from moetuned.decide import supervision_words as words
from moetuned.decide.exit_cause import Cause, Obstacle

PLAN = sv.LaunchPlan(8192)
MISSING = Obstacle(Cause.MODEL_MISSING, "its model is not there")


def state(stage: sv.Stage, **more: object) -> sv.Supervision:
    return sv.Supervision("glm", PLAN, stage=stage, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (state(sv.Stage.READY), None),
        (state(sv.Stage.STOPPED), "is not running"),
        (state(sv.Stage.LOADING), None),
        (state(sv.Stage.STOPPING), "is being ended"),
        (state(sv.Stage.STOPPING, next_plan=PLAN), "is being restarted"),
        (state(sv.Stage.STOPPING, hung=True), "is being restarted"),
        (state(sv.Stage.WAITING, retry_at=15.0), "is not running; it is started again in 5.0 s"),
        (state(sv.Stage.WAITING, retry_at=3.0), "is not running; it is started again in 1.0 s"),
        (
            state(sv.Stage.LOADING, obstacle=MISSING),
            "is not running: its model is not there; it is started once it can be read",
        ),
    ],
)
def test_why_it_does_not_run(now: sv.Supervision, said: str | None) -> None:
    assert words.absence(now, 10.0) == said


def test_one_that_is_left_stopped_says_what_can_be_done() -> None:
    said = words.absence(state(sv.Stage.BROKEN, exits=(1.0, 2.0), fruitless=5), 10.0)
    assert said is not None
    assert said.startswith("is not running: it failed 5 times in a row; ")
    assert said.endswith(sv.try_again("glm"))


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (state(sv.Stage.READY), None),
        (state(sv.Stage.STOPPING), None),
        (
            state(sv.Stage.DRAINING, drain_until=40.0, busy=1),
            "waits for 1 request to end before its restart, at most 30 s",
        ),
        (
            state(sv.Stage.DRAINING, drain_until=40.0, busy=2),
            "waits for 2 requests to end before its restart, at most 30 s",
        ),
        (state(sv.Stage.DRAINING, drain_until=40.0, busy=0), "is restarted now: it works on no request"),
        (
            state(sv.Stage.DRAINING, drain_until=12.0),
            "is restarted in a moment; what it works on is not known (at most 2.0 s)",
        ),
        (state(sv.Stage.SAVING, stage_until=20.0), "saves its conversations before its restart"),
        (state(sv.Stage.RESTORING, stage_until=20.0), "was restarted and reads its conversations again"),
    ],
)
def test_what_a_restart_waits_for(now: sv.Supervision, said: str | None) -> None:
    assert words.before_restart(now, 10.0) == said
