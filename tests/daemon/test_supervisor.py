"""What all ways of supervising have in common; the rest is tested with each of them."""

from __future__ import annotations

import pytest
from daemon_fakes import FakeProcess
from supervisor_rig import SHORT, FakeCheck, FakeConversations, Rig, ready, supervised_rig  # noqa: F401  a fixture

from moetuned.daemon.supervisor import Supervisor
from moetuned.decide import supervision as sv
from moetuned.decide.launch_command import preferred_plan
from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.config import Backend, Context
from moetuned.schema.event import EventName
from moetuned.schema.supervision import RestartCause


def test_the_config_says_what_it_is_started_with() -> None:
    config = Backend(
        name="glm", context=Context(preferred=8192, minimum=1024), prompt_cache_mib=64, slots=2, cache_type="q8_0"
    )
    assert preferred_plan(config) == LaunchPlan(8192, 64, 2, None, "q8_0")


def test_a_restart_waits_for_requests_and_counts_once_it_begins(rig: Rig) -> None:
    supervisor = ready(rig)
    ends: list[str] = []
    supervisor.before_end = lambda: ends.append("end")
    supervisor.hear(1, rig.clock.now)
    supervisor.restart(SHORT, seconds=30.0)
    assert supervisor.draining
    assert "waits for 1 request" in (supervisor.before_restart or "")
    assert (supervisor.relief_restarts, ends, rig.spawn.started[0].signals) == ((), [], [])
    supervisor.call_off()
    assert (supervisor.draining, supervisor.before_restart) == (False, None)
    supervisor.restart(SHORT, seconds=30.0)
    rig.clock.now += 1
    supervisor.hear(0, rig.clock.now)
    assert supervisor.relief_restarts == (rig.clock.now,)
    assert (ends, rig.spawn.started[0].signals) == (["end"], ["TERM"])


def test_a_restart_that_is_not_to_free_memory_does_not_count(rig: Rig) -> None:
    supervisor = ready(rig)
    supervisor.restart_by_hand(SHORT)
    assert rig.spawn.started[0].signals == ["TERM"]
    assert supervisor.relief_restarts == ()


def test_its_conversations_are_saved_kept_while_it_restarts_and_read_again(rig: Rig) -> None:
    supervisor = ready(rig)
    kept = supervisor.conversations = FakeConversations()  # type: ignore[assignment]
    supervisor.restart(SHORT, seconds=30.0)
    supervisor.hear(0, rig.clock.now)
    assert kept.did[-1] == "save"
    kept.done(1, 0)
    supervisor.hear(0, rig.clock.now)
    rig.end(rig.spawn.started[0], 0)
    supervisor.tick()
    supervisor.healthy()
    assert kept.did[-1] == "restore"
    assert "discard" not in kept.did[kept.did.index("save") :]
    assert EventName.BACKEND_RESTARTED not in [name for name, _ in rig.said]
    kept.done(1, 0)
    assert kept.did[-1] == "discard"
    assert "1 conversation goes on" in rig.said[-1][1]


def test_conversations_that_were_not_saved_are_told(rig: Rig) -> None:
    supervisor = ready(rig)
    kept = supervisor.conversations = FakeConversations()  # type: ignore[assignment]
    supervisor.restart(SHORT, seconds=30.0)
    supervisor.hear(0, rig.clock.now)
    kept.done(0, 2)
    supervisor.hear(0, rig.clock.now)
    rig.end(rig.spawn.started[0], 0)
    supervisor.healthy()
    assert "; 2 conversations were lost; " in rig.said[-1][1]
    supervisor.restart(SHORT)
    rig.end(rig.spawn.started[1], 0)
    supervisor.healthy()
    assert "lost" not in rig.said[-1][1]


def test_what_was_saved_goes_when_it_does_not_come_back(rig: Rig) -> None:
    supervisor = ready(rig)
    kept = supervisor.conversations = FakeConversations()  # type: ignore[assignment]
    supervisor.restart(SHORT, seconds=30.0)
    supervisor.hear(0, rig.clock.now)
    kept.done(1, 0)
    supervisor.hear(0, rig.clock.now)
    rig.end(rig.spawn.started[0], 0)
    assert kept.did[-1] == "save"
    rig.end(rig.spawn.started[1], 1)
    assert kept.did[-1] == "discard"


def test_a_request_that_comes_while_they_are_saved_is_waited_for_and_they_go_when_that_is_called_off(rig: Rig) -> None:
    supervisor = ready(rig)
    kept = supervisor.conversations = FakeConversations()  # type: ignore[assignment]
    supervisor.restart(SHORT, seconds=30.0)
    supervisor.hear(0, rig.clock.now)
    kept.done(1, 0)
    supervisor.hear(1, rig.clock.now)
    assert (supervisor.draining, kept.did[-1], rig.spawn.started[0].signals) == (True, "save", [])
    supervisor.call_off()
    assert (supervisor.draining, kept.did[-1], rig.spawn.started[0].signals) == (False, "discard", [])


@pytest.mark.parametrize(
    ("connections", "told"),
    [
        (0, "; no request was cut off"),
        (None, "; whether a request was cut off is not known"),
        (2, "; whether requests were cut off in the last moment is not known: no more than 2 connections were open"),
    ],
)
def test_what_is_connected_right_before_its_end_is_told_after_it(rig: Rig, connections: int | None, told: str) -> None:
    supervisor = ready(rig)
    signals: list[list[str]] = []

    def connected() -> int | None:
        signals.append(list(rig.spawn.started[0].signals))
        return connections

    supervisor.at_end.connections = connected
    supervisor.restart(SHORT, seconds=30.0)
    supervisor.hear(0, rig.clock.now)
    assert signals[0] == [], "before it is told to end"
    rig.end(rig.spawn.started[0], 0)
    supervisor.healthy()
    assert rig.said[-1][1].endswith(told)


@pytest.mark.parametrize(
    ("connections", "told"),
    [(0, "no request was cut off"), (None, "no request was cut off"), (2, "is not known: no more than 2 connections were open")],
)  # fmt: skip
def test_one_that_was_not_seen_ready_may_answer_already(rig: Rig, connections: int | None, told: str) -> None:
    supervisor = rig.make()
    supervisor.start()
    supervisor.at_end.connections = lambda: connections
    supervisor.restart(SHORT)
    rig.end(rig.spawn.started[0], 0)
    supervisor.healthy()
    assert rig.said[-1][1].endswith(told)


@pytest.mark.parametrize(
    ("half", "connections", "told"),
    [
        (False, 0, "; no request was cut off"),
        (False, 2, "is not known: no more than 2 connections were open"),
        (False, None, "; whether a request was cut off is not known"),
        (True, 0, "; whether a request was cut off is not known"),
    ],
)
def test_one_that_an_earlier_daemon_started_has_answered_before(
    rig: Rig, half: bool, connections: int | None, told: str
) -> None:
    first = ready(rig)
    if half:
        first.restart(SHORT)
    rig.spawn.adoptable[rig.spawn.started[0].identity] = process = FakeProcess(rig.spawn.started[0].identity.pid, [])
    supervisor = rig.make()
    supervisor.at_end.connections = lambda: connections
    supervisor.start()
    assert supervisor.adopted
    if not half:
        supervisor.restart(SHORT)
    rig.end(process, 0)
    supervisor.healthy()
    assert rig.said[-1][1].endswith(told)


def test_conversations_that_would_be_lost_are_not_saved(rig: Rig) -> None:
    supervisor = ready(rig)
    kept = supervisor.conversations = FakeConversations()  # type: ignore[assignment]
    kept.lost = "it cannot"
    supervisor.restart(SHORT, seconds=30.0)
    supervisor.hear(0, rig.clock.now)
    assert "save" not in kept.did
    assert rig.spawn.started[0].signals == ["TERM"]


def test_a_restart_that_waits_is_called_off_when_it_is_to_end_for_good(rig: Rig) -> None:
    supervisor = ready(rig)
    supervisor.restart(SHORT, "memory is short", seconds=60)
    supervisor.stop()
    assert rig.said == []
    assert (supervisor.restarts, supervisor.relief_restarts) == ((), ())
    rig.end(rig.spawn.started[0], 0)
    assert supervisor.stopped


def test_a_restart_whose_backend_ended_by_itself_waits_no_more(rig: Rig) -> None:
    supervisor = ready(rig)
    supervisor.restart(SHORT, "memory is short", seconds=60)
    rig.end(rig.spawn.started[0], 1)
    rig.clock.now += 1
    supervisor.tick()
    supervisor.healthy()
    supervisor.stop()
    assert EventName.BACKEND_RESTARTING not in [name for name, _ in rig.said]
    assert [one.cause for one in supervisor.restarts] == [RestartCause.EXIT]


def test_one_that_is_ended_because_it_hangs_was_restarted(rig: Rig) -> None:
    supervisor = ready(rig)
    supervisor.hung()
    rig.end(rig.spawn.started[0], 0)
    rig.clock.now += 1
    supervisor.tick()
    supervisor.healthy()
    assert [(one.cause, one.why) for one in supervisor.restarts] == [(RestartCause.EXIT, "it hung")]


def checked(rig: Rig) -> tuple[Supervisor, FakeCheck]:
    supervisor, check = ready(rig), FakeCheck()
    supervisor.check = check  # type: ignore[assignment]
    return supervisor, check


GONE = "its model /m.gguf is not there"


@pytest.mark.parametrize("cause", [RestartCause.RELIEF, RestartCause.RETURN, RestartCause.BY_HAND])
def test_one_that_could_not_start_again_is_not_ended_and_that_is_told(rig: Rig, cause: RestartCause) -> None:
    supervisor, check = checked(rig)
    match cause:
        case RestartCause.RELIEF:
            supervisor.restart(SHORT, "memory is short")
        case RestartCause.RETURN:
            supervisor.give_back(SHORT, "memory is ample")
        case _:
            supervisor.restart_by_hand(SHORT, 2048)
    assert (supervisor.draining, supervisor.waits_because, rig.spawn.started[0].signals) == (True, cause, [])
    assert "could start again" in (supervisor.before_restart or "")
    check.answer(GONE)
    assert (supervisor.restarting, supervisor.state.stage) == (False, sv.Stage.READY)
    assert rig.spawn.started[0].signals == []
    name = EventName.RELIEF_EXHAUSTED if cause is RestartCause.RELIEF else EventName.BACKEND_NOT_RESTARTED
    ((told, message),) = rig.said
    assert told is name
    assert GONE in message
    (one,) = supervisor.restarts
    assert (one.cause, one.failed) == (cause, f"{GONE}; it goes on as it is")
    assert (supervisor.restarts_by_cause, supervisor.relief_restarts, supervisor.chosen_context) == ({}, (), None)
    check.news = False
    supervisor.restart(SHORT, "memory is short")
    check.answer(GONE)
    assert len(rig.said) == 1


def test_one_that_can_start_again_is_restarted_and_the_look_is_part_of_the_wait(rig: Rig) -> None:
    supervisor, check = checked(rig)
    supervisor.restart(SHORT, "memory is short", seconds=30)
    rig.clock.now += 1
    check.answer(None)
    assert supervisor.state.drain_until == rig.clock.now + 29
    supervisor.hear(0, rig.clock.now)
    assert rig.spawn.started[0].signals == ["TERM"]


def test_a_restart_that_is_hastened_while_that_is_looked_for_waits_no_longer(rig: Rig) -> None:
    supervisor, check = checked(rig)
    supervisor.restart(SHORT, "memory is short", seconds=30)
    supervisor.hasten(0.0)
    assert rig.spawn.started[0].signals == []
    check.answer(None)
    assert rig.spawn.started[0].signals == ["TERM"]


def test_a_restart_that_is_called_off_while_that_is_looked_for_is_not_made(rig: Rig) -> None:
    supervisor, check = checked(rig)
    supervisor.restart(SHORT, "memory is short")
    supervisor.call_off()
    check.answer(None)
    assert (supervisor.restarting, rig.spawn.started[0].signals, rig.said) == (False, [], [])


def test_what_does_not_run_is_started_without_that_look(rig: Rig) -> None:
    supervisor, check = checked(rig)
    rig.end(rig.spawn.started[0], 1)
    supervisor.restart_by_hand(SHORT)
    assert (check.waiting, len(rig.spawn.started)) == ([], 2)
