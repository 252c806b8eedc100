"""The checks of the matrix themselves: what each run must be told for, and what not."""

from __future__ import annotations

import pytest
from relief_asker import COMPLETE, CUT_OFF, REFUSED, Outcome
from relief_checks import (
    DRAIN_SECONDS,
    BackendRun,
    Run,
    Said,
    drain_seconds,
    relieved,
    reported_unfinished,
    row,
    table,
    violations,
)


def relief(message: str = "one was restarted", **changes: object) -> Run:
    """Near its limit at 10, ended at 12, healthy again at 15; its load alone takes 3 s."""
    backend = BackendRun(
        "one", 512, 3.0,
        lives=[(7, 0.0, 12.0), (8, 12.1, 60.0)],
        healthy=[(3.0, True), (12.0, False), (15.0, True)],
        contexts=[(4.0, 4096), (16.0, 1024)],
        outcomes=[Outcome(5.0, 6.0, COMPLETE, True), Outcome(11.0, 12.0, CUT_OFF, True), Outcome(12.5, 12.5, REFUSED)],
    )  # fmt: skip
    events = [Said(10.0, "memory_near_limit", "one"), Said(16.0, "backend_restarted", "one", message)]
    run = Run("squeeze", 1 << 30, 120.0, [backend], events, restarts_allowed=1, relief_due=True)
    for key, value in changes.items():
        setattr(run if hasattr(run, key) else backend, key, value)
    return run


def test_a_good_run_violates_nothing() -> None:
    assert violations(relief()) == []
    assert [(one.from_alarm, one.from_due, one.allowed) for one in relieved(relief(), relief().backends[0])] == [
        (5.0, 5.0, 8.0)
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"oom_kills": 2}, "2 OOM kills"),
        ({"unasked_deaths": [1]}, "the daemon died by itself, codes [1]"),
        ({"daemon_code": 3}, "the daemon did not end in order: 3"),
        ({"daemon_code": None}, "the daemon did not end in order: killed"),
        ({"left": ["process 9"]}, "left behind: process 9"),
        ({"problems": ["it never came"]}, "it never came"),
        ({"restarts_allowed": 0}, "1 restarts, at most 0 were of use"),
        ({"events": []}, "memory was never relieved: no backend_restarted"),
        ({"doubles": [(12.0, (7, 8))]}, "one: two processes at once: (7, 8)"),
        ({"contexts": [(16.0, 256)]}, "one: a context of 256, the minimum is 512"),
        ({"load_seconds": -1.0}, "one: healthy again 5.0 s after memory was near its limit, 4.0 s are allowed"),
    ],
)
def test_each_violation_is_said(changes: dict[str, object], said: str) -> None:
    assert violations(relief(**changes)) == [said]


def test_an_oom_kill_that_nothing_could_have_prevented_is_none() -> None:
    assert violations(relief(oom_kills=1, oom_kill_is_fault=False)) == []


def test_a_second_restart_within_the_cool_down() -> None:
    run = relief(restarts_allowed=2)
    run.backends[0].lives.append((9, 60.0, 80.0))
    run.backends[0].healthy += [(60.0, False), (62.0, True)]
    run.events += [Said(58.0, "memory_near_limit", "one"), Said(62.0, "backend_restarted", "one")]
    assert violations(run) == ["one: a second restart 47.9 s after the first, within the cool-down of 120 s"]
    run.cool_down_seconds = 45.0
    assert violations(run) == []
    run.cool_down_seconds, run.strict = 120.0, False
    assert violations(run) == []


def test_a_request_that_a_restart_waited_for_is_allowed_its_time() -> None:
    run = relief()
    run.backends[0].load_seconds = -1.5
    assert len(violations(run)) == 1
    run.backends[0].outcomes = [Outcome(9.0, 11.5, COMPLETE, True)]
    assert drain_seconds(run.backends[0], 10.0, 12.0) == 1.5
    assert violations(run) == []


def test_requests_that_follow_each_other_hold_it_up_for_as_long_as_it_may_wait() -> None:
    row = [Outcome(at, at + 0.95, COMPLETE, True) for at in range(100)]
    backend = BackendRun("one", 512, 3.0, outcomes=row)  # type: ignore[arg-type]
    assert drain_seconds(backend, 10.5, 15.5) == 5.0
    assert drain_seconds(backend, 10.5, 90.0) == DRAIN_SECONDS
    backend.outcomes = [one for one in row if one.begun != 13]
    assert drain_seconds(backend, 10.5, 15.5) == pytest.approx(12.95 - 10.5), (
        "there was time to see that none was worked on"
    )
    backend.outcomes = [Outcome(9.0, 9.5, COMPLETE, True), Outcome(10.2, 10.2, REFUSED)]
    assert drain_seconds(backend, 10.0, 12.0) == 0.0


def test_while_the_limit_is_far_it_may_wait_whether_memory_goes_on_growing() -> None:
    run = relief()
    run.backends[0].load_seconds, run.backends[0].outcomes = -1.5, []
    run.backends[0].waits = [10.5, 11.0]
    assert len(violations(run)) == 1
    run.backends[0].waits = [10.5, 11.0, 11.5]
    assert violations(run) == []


@pytest.mark.parametrize(
    ("message", "count"),
    [
        ("one was restarted with a context of 2048 tokens and is healthy again after 4.0 s", None),
        ("one was restarted with a context of 2048 tokens; 2 requests were cut off", 2),
        ("one was restarted; one unfinished request was cut off", 1),
        ("one was restarted; no request was cut off", 0),
        (
            "one was restarted; whether requests were cut off in the last moment is not known: no more than 2 connections were open",
            None,
        ),
        ("one was restarted; whether a request was cut off is not known", None),
        ("one was restarted after 12 s, of which 8 s waiting for 3 requests; 1 request was cut off", 1),
    ],
)
def test_how_many_requests_a_message_says_were_cut_off(message: str, count: int | None) -> None:
    assert reported_unfinished(message) == count


def test_what_is_reported_must_be_what_the_clients_lost() -> None:
    assert violations(relief("one was restarted; 1 request was cut off")) == []
    for said, number in (("3 requests were", 3), ("no request was", 0)):
        run = relief(f"one was restarted; {said} cut off")
        lost = next(one for one in run.backends[0].outcomes if one.kind == CUT_OFF)
        assert violations(run) == [
            f"one: says that it cut off {number} requests; the clients lost 1 ({lost.begun:.3f} to {lost.ended:.3f} s)"
        ]


def test_what_is_not_known_is_no_wrong_number_unless_more_were_lost_than_were_connected() -> None:
    unknown = "one was restarted; whether requests were cut off in the last moment is not known: "
    assert violations(relief("one was restarted; whether a request was cut off is not known")) == []
    assert violations(relief(f"{unknown}no more than 1 connection was open")) == []
    run = relief(f"{unknown}no more than 2 connections were open")
    assert violations(run) == []
    run.backends[0].outcomes *= 3
    assert [each.partition(" (")[0] for each in violations(run)] == [
        "one: says that it cut off 0 to 2 requests; the clients lost 3"
    ]


def test_the_table_names_the_run_and_what_was_seen() -> None:
    text = table([row(relief(oom_kills=1))])
    assert "squeeze" in text
    assert "4096>1024" in text
    assert "1/1/1" in text
    assert text.endswith("1 OOM kills")
