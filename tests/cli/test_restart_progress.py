"""A restart by hand as it is told."""

from __future__ import annotations

import io
from collections.abc import Iterator

import msgspec
import pytest
from backend_scenes import ANSWER, GLM, NOW, snapshot

from moetuned.cli.progress_line import OneLine
from moetuned.cli.restart_progress import Outcome, deadline_seconds, follow, forecast
from moetuned.schema.snapshot import BackendView, Snapshot
from moetuned.schema.supervision import Restart, RestartCause

BEGUN = Restart(NOW + 1, RestartCause.BY_HAND, "somebody asked for it", 8192, 4096)
DONE = msgspec.structs.replace(BEGUN, took_seconds=38.0)


def seen(stage: str, *restarts: Restart, waits: str | None = None, sentence: str = "is being restarted") -> BackendView:
    told = msgspec.structs.replace(GLM.supervision, stage=stage, restarts=restarts, waits=waits)
    return msgspec.structs.replace(GLM, supervision=told, sentence=sentence, before_start=None)


class Daemon:
    def __init__(self, *views: BackendView | None) -> None:
        self.views: Iterator[BackendView | None] = iter(views)

    def status(self) -> Snapshot:
        view = next(self.views)
        return snapshot() if view is None else snapshot(view)


def end(*views: BackendView | None, deadline: float = 100.0) -> Outcome:
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    return follow(Daemon(*views), ANSWER, deadline, pause, lambda: now[0], OneLine(io.StringIO()))


def test_until_it_is_healthy() -> None:
    outcome = end(
        seen("ready", waits="is restarted once its requests are answered"),
        seen("stopping", BEGUN),
        seen("loading", BEGUN, sentence="is loading its model"),
        seen("ready", DONE),
    )
    assert outcome == Outcome(True, "glm is healthy again with a context of 4096 tokens, after 38 s")


def test_guard_rails_gave_it_less() -> None:
    less = msgspec.structs.replace(
        seen("ready", msgspec.structs.replace(DONE, context_after=2048)), before_start="it fits"
    )
    assert end(less).sentence == (
        "glm is healthy again with a context of 2048 tokens, after 38 s; 4096 were asked for; it fits"
    )


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (None, "no longer in the config"),
        (
            seen("waiting", BEGUN, sentence="is not running; it is started again in 5 s"),
            "started again in 5 s; its log: /var",
        ),
        (seen("broken", BEGUN, sentence="is not running: it failed"), "it failed"),
        (seen("stopped", BEGUN), "was stopped"),
        (seen("ready"), "was not restarted"),
    ],
)
def test_it_did_not_go_well(view: BackendView | None, why: str) -> None:
    outcome = end(view)
    assert not outcome.well
    assert why in outcome.sentence


def test_who_runs_it_did_not_do_it() -> None:
    why = "there is no program docker in the system's directories; install docker"
    failed = msgspec.structs.replace(BEGUN, failed=why)
    for stage in ("stopped", "ready"):
        outcome = end(seen("stopping", BEGUN), seen(stage, failed))
        assert outcome == Outcome(False, f"glm could not be restarted: {why}")


def test_relief_was_faster() -> None:
    relief = Restart(NOW + 2, RestartCause.RELIEF, "memory", 8192, 2048, 30.0)
    assert "2048 tokens, after 30 s; 4096 were asked for" in end(seen("ready", relief)).sentence


def test_restarts_before_it_do_not_count() -> None:
    before = Restart(NOW - 1, RestartCause.BY_HAND, "", 8192, 8192, 5.0)
    assert not end(seen("ready", before)).well


def test_after_the_deadline_it_is_left_alone() -> None:
    outcome = end(*[seen("loading", BEGUN, sentence="is loading its model")] * 10, deadline=2.0)
    assert not outcome.well
    assert "it is loading its model; it goes on" in outcome.sentence


def test_a_line_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    follow(
        Daemon(seen("loading", BEGUN, sentence="is\x1b[2J bad"), seen("ready", DONE)),
        ANSWER,
        9.0,
        lambda _: None,
        line=OneLine(stream),
    )
    assert "glm is?[2J bad, 1.0 s of about 40 s" in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_what_it_will_be() -> None:
    (one,) = forecast(ANSWER)
    assert one == (
        "glm is ended and started again with a context of 4096 tokens (now 8192); that takes about 40 s (as its last load)."
    )
    busy = msgspec.structs.replace(
        ANSWER, busy=2, context_after=8192, expected_seconds=None, expected_source="nobody knows"
    )
    first, second = forecast(busy)
    assert first.endswith("8192 tokens; how long that takes is not known: nobody knows.")
    assert second.startswith("2 requests of now: waited for, 1 min at most")
    assert list(forecast(msgspec.structs.replace(busy, busy=1, wait_seconds=0.0)))[1] == "1 request of now: cut off."
    assert "not known; those" in list(forecast(msgspec.structs.replace(busy, busy=None)))[1]


def test_nothing_is_cut_off_where_nothing_runs() -> None:
    stopped = msgspec.structs.replace(ANSWER, runs=False, busy=None)
    assert list(forecast(stopped)) == [
        "glm does not run now: it is started with a context of 4096 tokens (now 8192); that takes about 40 s (as its last load)."
    ]


def test_the_deadline_is_of_what_is_expected_else_of_the_models_size() -> None:
    unknown = msgspec.structs.replace(ANSWER, expected_seconds=None)
    assert deadline_seconds(ANSWER, 1) == pytest.approx(3 * 40.4 + 120)
    assert deadline_seconds(unknown, 400 * 10**9) > deadline_seconds(unknown, 10**9) > 60
    assert deadline_seconds(unknown, None) > 600
