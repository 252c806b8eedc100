"""A child of the daemon: commands carried out on a process, one process at a time."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from supervisor_rig import COMMAND, SHORT, TIMING, FakeTaken, Preparing, Rig, backend, prepared, ready, supervised_rig  # noqa: F401  a fixture

from moetuned.daemon import cut_off_looks
from moetuned.daemon.process_supervisor import (
    EXAMINE_SECONDS,
    Ended,
    ProcessSupervisor,
)
from moetuned.decide import supervision as sv
from moetuned.decide.exit_cause import Cause, Ending, Obstacle
from moetuned.host import bounded_program, kernel_log
from moetuned.schema.config import Context
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseProcess
from moetuned.state import backend_record


def test_starts_and_records(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    process = rig.spawn.started[0]
    assert process.argv == ["server", "-m", "/m.gguf", "-c", "8192", "--cache-ram", "64"]
    assert rig.spawn.options[0]["cgroup_directory"] == "/sys/fs/cgroup/x"
    assert rig.spawn.options[0]["environment"]["A"] == "1"
    record = backend_record.read("glm", rig.directory)
    assert record is not None
    assert (record.pid, record.context_length, record.prompt_cache_mib) == (process.identity.pid, 8192, 64)
    assert supervisor.identity == process.identity


def test_restart_ends_the_first_before_it_starts_the_second(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    supervisor.healthy()
    supervisor.restart(sv.LaunchPlan(2048, 0))
    first = rig.spawn.started[0]
    assert first.signals == ["TERM"]
    assert len(rig.spawn.started) == 1
    rig.end(first, 0)
    assert rig.spawn.started[1].argv[4] == "2048"
    assert backend_record.read("glm", rig.directory).pid == rig.spawn.started[1].identity.pid
    assert supervisor.state.restarts == 1
    rig.clock.now += 12
    supervisor.healthy()
    assert rig.said[-1][0] is EventName.BACKEND_RESTARTED
    assert "12 s" in rig.said[-1][1]


def test_one_that_does_not_end_is_killed(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    supervisor.stop()
    assert supervisor.absence == "is being ended"
    rig.clock.now += TIMING.terminate_seconds
    supervisor.tick()
    assert rig.spawn.started[0].signals == ["TERM", "KILL"]
    rig.end(rig.spawn.started[0], -9)
    assert supervisor.stopped
    assert rig.said == []
    assert backend_record.read("glm", rig.directory) is None


def test_a_crash_loop_ends_in_the_breaker_and_a_retry_begins_anew(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    for exits in range(TIMING.breaker_exits):
        assert len(rig.spawn.started) == exits + 1
        rig.end(rig.spawn.started[-1], 1)
        rig.clock.now += 5
        supervisor.tick()
    assert [name for name, _ in rig.said] == [EventName.BACKEND_DOWN, EventName.BACKEND_CRASH_LOOP]
    assert "started again in 1.0 s" in rig.said[0][1]
    assert "leaves it stopped" in rig.said[1][1]
    assert supervisor.stopped
    assert "failed 3 times" in (supervisor.absence or "")
    supervisor.tick()
    assert len(rig.spawn.started) == 3
    supervisor.retry()
    rig.end(rig.spawn.started[-1], 1)
    assert not supervisor.stopped


def test_a_start_that_fails_is_as_an_exit(rig: Rig) -> None:
    rig.spawn.refusals = ["there is no program server on PATH"]
    supervisor = rig.make()
    supervisor.start()
    assert rig.said[0][0] is EventName.BACKEND_DOWN
    assert "there is no program server on PATH" in rig.said[0][1]
    rig.clock.now += 1
    supervisor.tick()
    assert len(rig.spawn.started) == 1


def test_a_changed_entry_counts_from_the_next_start(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    supervisor.healthy()
    plain = SuperviseProcess(command=["server", "-c", "4096"])
    supervisor.reconfigure(backend(supervise=plain, context=Context(preferred=4096)))
    assert supervisor.sets("context")
    assert supervisor.state.plan.context_length == 8192
    rig.end(rig.spawn.started[0], 1)
    rig.clock.now += 1
    supervisor.tick()
    assert rig.spawn.started[1].argv == ["server", "-c", "4096"]
    assert supervisor.state.plan.context_length == 4096
    assert not supervisor.sets("context")


def test_resumed_while_it_ends_it_starts_again_afterwards(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    supervisor.stop()
    supervisor.reconfigure(backend(context=Context(preferred=4096)))
    supervisor.resume()
    assert len(rig.spawn.started) == 1
    rig.end(rig.spawn.started[0], 0)
    assert rig.spawn.started[1].argv[4] == "4096"
    assert not supervisor.stopped


def test_after_letting_go_nothing_is_called_any_more(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    supervisor.let_go()
    assert rig.spawn.started[0].closed
    assert rig.spawn.started[0].signals == []
    supervisor.kill()
    rig.loop.run_once(0)
    assert rig.said == []


def test_it_is_started_with_what_it_is_told_to_before_its_start(rig: Rig) -> None:
    supervisor, prepare = prepared(rig)
    assert rig.spawn.started == []
    assert supervisor.state.stage is sv.Stage.LOADING
    prepare.answer(plan=sv.LaunchPlan(4096, 0), command=[*COMMAND, "-nr"], said="started with what fits")
    assert rig.spawn.started[0].argv[4:] == ["4096", "--cache-ram", "0", "-nr"]
    assert supervisor.state.plan == sv.LaunchPlan(4096, 0)
    assert supervisor.before_start == "started with what fits"


def test_a_restart_of_relief_does_not_wait_and_keeps_the_command(rig: Rig) -> None:
    supervisor, prepare = prepared(rig)
    prepare.answer(command=[*COMMAND, "-nr"])
    supervisor.healthy()
    supervisor.restart(sv.LaunchPlan(2048, 0))
    rig.end(rig.spawn.started[0], 0)
    assert rig.spawn.started[1].argv[4:] == ["2048", "--cache-ram", "0", "-nr"]
    assert prepare.asked == []
    supervisor.healthy()
    rig.end(rig.spawn.started[1], 1)
    rig.clock.now += 5
    supervisor.tick()
    assert len(prepare.asked) == 1, "one that ended by itself is looked at again"


def test_one_that_is_refused_is_tried_again_later_and_told(rig: Rig) -> None:
    supervisor, prepare = prepared(rig)
    prepare.answer(refused="it would take too much")
    assert rig.spawn.started == []
    assert supervisor.state.stage is sv.Stage.WAITING
    assert "could not be started: it would take too much" in rig.said[-1][1]


def test_one_that_is_stopped_before_it_was_started_is_not_started_any_more(rig: Rig) -> None:
    supervisor, prepare = prepared(rig)
    supervisor.stop()
    assert supervisor.stopped
    prepare.answer()
    assert rig.spawn.started == []


def test_one_that_is_let_go_before_it_was_started_is_not_started_any_more(rig: Rig) -> None:
    supervisor, prepare = prepared(rig)
    supervisor.let_go()
    prepare.answer()
    assert rig.spawn.started == []


def test_one_that_is_restarted_before_it_was_started_is_started_once(rig: Rig) -> None:
    supervisor, prepare = prepared(rig)
    supervisor.restart(sv.LaunchPlan(2048, 0))
    prepare.answer()
    assert rig.spawn.started == []
    prepare.answer()
    assert [process.argv[4] for process in rig.spawn.started] == ["2048"]
    assert prepare.asked == []


def test_what_is_changed_before_its_start_is_told_once(rig: Rig) -> None:
    supervisor, prepare = prepared(rig)
    less = {"plan": sv.LaunchPlan(4096, 0), "said": "started with what fits (context 8192 -> 4096)"}
    prepare.answer(**less)
    assert rig.said == [(EventName.BACKEND_START_CHANGED, "glm: started with what fits (context 8192 -> 4096)")]
    rig.end(rig.spawn.started[0], 1)
    rig.clock.now += 1
    supervisor.tick()
    prepare.answer(**less)
    assert [name for name, _ in rig.said] == [EventName.BACKEND_START_CHANGED, EventName.BACKEND_DOWN]


def test_one_that_does_not_fit_and_is_started_as_it_is_is_no_changed_start(rig: Rig) -> None:
    _supervisor, prepare = prepared(rig)
    prepare.answer(said="started as it is: it would take 9 GiB")
    assert rig.said == []
    assert len(rig.spawn.started) == 1


TAKEN = Obstacle(Cause.PORT_TAKEN, "port 8080 is taken by nginx (pid 7)")


def test_what_lets_it_not_start_is_told_once_and_waited_for(rig: Rig) -> None:
    supervisor, prepare = prepared(rig)
    for _ in range(3 * TIMING.breaker_exits):
        prepare.answer(obstacle=TAKEN)
        assert "port 8080 is taken by nginx (pid 7)" in (supervisor.absence or "")
        rig.clock.now += TIMING.look_seconds
        supervisor.tick()
    assert [name for name, _ in rig.said] == [EventName.BACKEND_PORT_TAKEN]
    assert rig.spawn.started == []
    assert rig.record is None
    prepare.answer()
    assert supervisor.absence is None
    supervisor.healthy()
    assert [name for name, _ in rig.said] == [EventName.BACKEND_PORT_TAKEN, EventName.BACKEND_RECOVERED]


class Examining:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Ended] = []
        self._done: list = []

    def __call__(self, ended: Ended, done) -> None:
        self.asked.append(ended)
        self._done.append(done)

    def answer(self, cause: Cause, how: str) -> None:
        self._done.pop(0)(Ending(cause, how))


def test_why_it_ended_is_asked_before_anything_is_done(rig: Rig) -> None:
    examine = Examining()
    supervisor = rig.make(examine=examine)
    supervisor.start()
    rig.end(rig.spawn.started[0], -9)
    assert rig.said == []
    (asked,) = examine.asked
    assert (asked.identity, asked.how.code) == (rig.spawn.started[0].identity, -9)
    assert asked.command == tuple(rig.spawn.started[0].argv)
    examine.answer(Cause.OOM_KILLED, "was ended by the kernel's OOM killer: it says so")
    assert rig.said[0][0] is EventName.BACKEND_OOM_KILLED
    rig.clock.now += 1
    supervisor.tick()
    assert len(rig.spawn.started) == 2


def test_an_answer_that_takes_too_long_is_not_waited_for(rig: Rig) -> None:
    examine = Examining()
    supervisor = rig.make(examine=examine)
    supervisor.start()
    rig.end(rig.spawn.started[0], 3)
    rig.clock.now += EXAMINE_SECONDS - 0.1
    supervisor.tick()
    assert rig.said == []
    rig.clock.now += 0.1
    supervisor.tick()
    assert rig.said[0] == (EventName.BACKEND_DOWN, "glm exited with code 3; it is started again in 1.0 s")
    examine.answer(Cause.OOM_KILLED, "late")
    assert len(rig.said) == 1


def test_the_kernel_log_is_waited_for_as_long_as_it_may_take_outside() -> None:
    assert EXAMINE_SECONDS > kernel_log.OUTSIDE_SECONDS + bounded_program.TERM_SECONDS + bounded_program.KILL_SECONDS


@pytest.mark.parametrize("what", ["stop", "restart", "let_go"])
def test_while_that_is_asked_nothing_else_is_lost(rig: Rig, what: str) -> None:
    examine = Examining()
    supervisor = rig.make(examine=examine)
    supervisor.start()
    rig.end(rig.spawn.started[0], 3)
    if what == "restart":
        supervisor.restart(sv.LaunchPlan(2048, 0))
        assert [process.argv[4] for process in rig.spawn.started] == ["8192", "2048"]
    else:
        getattr(supervisor, what)()
        assert supervisor.stopped is (what == "stop")
    examine.answer(Cause.EXIT, "late")
    assert len(rig.spawn.started) == (2 if what == "restart" else 1)
    assert [name for name, _ in rig.said] == ([EventName.BACKEND_RESTARTING] if what == "restart" else [])


def test_one_that_was_told_to_end_needs_no_cause(rig: Rig) -> None:
    examine = Examining()
    supervisor = rig.make(examine=examine)
    supervisor.start()
    supervisor.stop()
    rig.end(rig.spawn.started[0], 1)
    assert (examine.asked, supervisor.stopped) == ([], True)


def test_kills_of_the_oom_killer_are_counted_in_its_cgroup_until_it_is_gone(rig: Rig, tmp_path: Path) -> None:
    examine, cgroup = Examining(), tmp_path / "cgroup"
    cgroup.mkdir()
    events = cgroup / "memory.events.local"
    supervisor = rig.make(examine=examine)

    def end_after(*counts: int, wait: float = 1.0) -> int | None:
        events.write_text("oom_kill 5\n")
        supervisor.counts_in(str(cgroup))
        for count in counts:
            events.write_text(f"oom_kill {count}\n")
            supervisor.tick()
            rig.clock.now += wait
        rig.end(rig.spawn.started[-1], -9)
        examine.answer(Cause.EXIT, "ended")
        supervisor.retry()
        rig.clock.now += 5
        supervisor.tick()
        return examine.asked[-1].oom_kills

    supervisor.start()
    assert end_after(5) == 0
    assert end_after(5, 6, 6) == 1, "a large one takes its time to die"
    assert end_after(6, 6, wait=100.0) == 0, "an old kill was not its end"


def test_what_counts_nothing_is_unknown(rig: Rig) -> None:
    examine = Examining()
    supervisor = rig.make(examine=examine)
    supervisor.start()
    rig.end(rig.spawn.started[0], -9)
    assert examine.asked[0].oom_kills is None, "its cgroup is not there"


def test_one_that_hangs_is_ended_and_counts_as_a_failure(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    supervisor.healthy()
    supervisor.hung()
    assert rig.spawn.started[0].signals == ["TERM"]
    assert supervisor.absence == "is being restarted"
    rig.clock.now += TIMING.terminate_seconds
    supervisor.tick()
    assert rig.spawn.started[0].signals == ["TERM", "KILL"]
    rig.end(rig.spawn.started[0], -9)
    rig.clock.now += 1
    supervisor.tick()
    assert len(rig.spawn.started) == 2
    supervisor.healthy()
    assert [name for name, _ in rig.said] == [EventName.BACKEND_RECOVERED]


# A daemon that is killed at any moment


def given_back(rig: Rig) -> tuple[ProcessSupervisor, Preparing]:
    """One that runs with 8192 tokens is being started with 16384."""
    supervisor, prepare = prepared(rig)
    prepare.answer()
    supervisor.healthy()
    supervisor.give_back(sv.LaunchPlan(16384, 64), "memory is ample")
    rig.end(rig.spawn.started[0], 0)
    return supervisor, prepare


def test_what_is_given_back_is_looked_at_before_it_is_started(rig: Rig) -> None:
    supervisor, prepare = given_back(rig)
    assert len(rig.spawn.started) == 1
    prepare.answer(plan=sv.LaunchPlan(12288, 64), command=[*COMMAND, "-nr"], said="started with what fits")
    assert rig.spawn.started[1].argv[4:] == ["12288", "--cache-ram", "64", "-nr"]
    assert supervisor.return_blocked == "no more fits: started with what fits"
    assert supervisor.relief_restarts == ()
    assert backend_record.read("glm", rig.directory).relief_restarts_at == ()


@pytest.mark.parametrize(
    "answer", [{"refused": "it is too much"}, {"plan": sv.LaunchPlan(8192, 64), "said": "it is too much"}]
)
def test_what_does_not_fit_when_it_is_given_back_is_started_as_before(rig: Rig, answer: dict) -> None:
    supervisor, prepare = given_back(rig)
    prepare.answer(**answer)
    assert rig.spawn.started[1].argv[4] == "8192"
    assert supervisor.state.plan == sv.LaunchPlan(8192, 64)
    assert "it is too much" in (supervisor.return_blocked or "")


def test_one_that_ends_as_it_loads_with_what_was_given_back_is_started_as_before(rig: Rig) -> None:
    supervisor, prepare = given_back(rig)
    prepare.answer()
    rig.end(rig.spawn.started[1], -signal.SIGKILL)
    assert supervisor.state.plan == sv.LaunchPlan(8192, 64)
    assert "while it loaded" in (supervisor.return_blocked or "")
    rig.clock.now += 5
    supervisor.tick()
    prepare.answer()
    assert rig.spawn.started[2].argv[4] == "8192"
    assert backend_record.read("glm", rig.directory).return_blocked == supervisor.return_blocked


def test_one_that_ends_later_keeps_what_was_given_back(rig: Rig) -> None:
    supervisor, prepare = given_back(rig)
    prepare.answer()
    supervisor.healthy()
    rig.end(rig.spawn.started[1], 1)
    assert (supervisor.state.plan.context_length, supervisor.return_blocked) == (16384, None)


@pytest.mark.parametrize(
    ("connections", "taken", "told"),
    [
        (0, 0, "no request was cut off"),
        (2, 0, "is not known: no more than 2 connections were open"),
        (0, 1, "is not known: no more than 1 connection was open"),
        (2, 1, "is not known: no more than 3 connections were open"),
        (0, None, "whether a request was cut off is not known"),
        (None, 0, "whether a request was cut off is not known"),
    ],
)
def test_what_connects_until_it_has_ended_is_counted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, connections: int | None, taken: int | None, told: str
) -> None:
    fake = FakeTaken(taken)
    monkeypatch.setattr(cut_off_looks, "TakenConnections", lambda _pid: fake)
    supervisor = ready(rig)
    supervisor.at_end.connections = lambda: connections
    supervisor.hear(0, rig.clock.now)
    supervisor.restart(SHORT)
    rig.end(rig.spawn.started[0], 0)
    assert fake.closed
    supervisor.healthy()
    assert rig.said[-1][1].endswith(told)
