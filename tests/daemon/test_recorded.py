"""What the next daemon is left of a backend, and finds of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from daemon_fakes import FakeProcess
from supervisor_rig import COMMAND, TIMING, Rig, backend, prepared, supervised_rig, taken_over  # noqa: F401  a fixture

from moetuned.daemon import recorded
from moetuned.daemon.process_supervisor import ProcessSupervisor
from moetuned.decide import supervision as sv
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.config import Context
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseProcess
from moetuned.state import backend_record


def test_the_next_daemon_takes_it_over(rig: Rig) -> None:
    first = rig.make()
    first.start()
    first.let_go()
    process = FakeProcess(rig.spawn.started[0].identity.pid, [])
    rig.spawn.adoptable[process.identity] = process
    rig.clock.now += 30
    second = rig.make(backend(context=Context(preferred=16384)))
    second.start()
    assert len(rig.spawn.started) == 1
    assert second.identity == process.identity
    assert second.state.plan == sv.LaunchPlan(8192, 64)
    assert second.adopted_age_seconds == pytest.approx(30)
    rig.end(process, None)
    assert rig.said[0][0] is EventName.BACKEND_DOWN


def test_restarts_that_were_made_are_known_to_the_next_daemon(rig: Rig) -> None:
    first = rig.make()
    first.start()
    first.healthy()
    first.restart(sv.LaunchPlan(2048, 0))
    at = rig.clock.now
    # One that is killed before it has started the new process made no restart.
    assert backend_record.read("glm", rig.directory).relief_restarts_at == ()
    rig.end(rig.spawn.started[0], 0)
    assert backend_record.read("glm", rig.directory).relief_restarts_at == (at,)
    rig.clock.now += 5
    assert taken_over(rig).relief_restarts == (at,)


def test_only_the_last_restarts_are_kept_and_none_lies_ahead(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    for _ in range(40):
        rig.clock.now += 1
        supervisor.healthy()
        supervisor.restart(sv.LaunchPlan(2048, 0))
        rig.end(rig.spawn.started[-1], 0)
    kept = backend_record.read("glm", rig.directory).relief_restarts_at
    assert len(kept) == backend_record.MOST_RESTARTS
    assert kept[-1] == rig.clock.now
    rig.clock.now -= 10
    assert taken_over(rig).relief_restarts == tuple(at for at in kept if at <= rig.clock.now)


def test_restarts_count_although_their_process_has_ended_but_not_in_another_boot(rig: Rig) -> None:
    for boot, expected in (("boot", (990.0,)), ("before", ())):
        record = backend_record.BackendRecord("glm", 77, 1, (), 4096, boot, relief_restarts_at=(990.0,))
        backend_record.write(record, rig.directory)
        supervisor = rig.make()
        supervisor.start()
        assert (supervisor.relief_restarts, supervisor.adopted) == (expected, False)


def test_its_warm_baseline_is_of_one_process_only(rig: Rig) -> None:
    warm = backend_record.WarmBaseline((backend_record.WarmSpeed(1, 90.0, 0.0),), 5, 4)
    first = rig.make()
    first.keep_warm(warm)
    assert first.warm is None
    first.start()
    assert first.warm is None
    first.keep_warm(warm)
    second = taken_over(rig)
    assert second.warm == warm
    assert second.state.plan == sv.LaunchPlan(8192, 64)
    first.healthy()
    first.restart(sv.LaunchPlan(2048, 0))
    rig.end(rig.spawn.started[0], 0)
    assert (first.warm, backend_record.read("glm", rig.directory).warm) == (None, None)


def test_how_it_was_started_and_how_long_it_loaded_is_known_to_the_next_daemon(rig: Rig) -> None:
    command = [*COMMAND, "-np", "{slots}", "-ctxcp", "{checkpoints}", "-ctk", "{cache_type}"]
    config = backend(supervise=SuperviseProcess(command=command), slots=4, checkpoints=8, cache_type="f16")
    first = rig.make(config)
    first.start()
    assert rig.spawn.started[0].argv[-6:] == ["-np", "4", "-ctxcp", "8", "-ctk", "f16"]
    assert first.load_seconds is None
    rig.clock.now += 30
    first.healthy()
    first.healthy()
    assert first.load_seconds == 30
    first.restart(sv.LaunchPlan(2048, 0, 1, 2, "q8_0"))
    rig.end(rig.spawn.started[0], 0)
    assert rig.spawn.started[1].argv[-6:] == ["-np", "1", "-ctxcp", "2", "-ctk", "q8_0"]
    rig.clock.now += 40
    first.healthy()
    second = taken_over(rig)
    assert second.state.plan == sv.LaunchPlan(2048, 0, 1, 2, "q8_0")
    assert second.load_seconds == 40


def test_whether_it_is_warm_is_known_to_the_next_daemon_and_of_one_process_only(rig: Rig) -> None:
    first = rig.make()
    first.note_warm_owed(True)
    assert not first.warm_owed, "nothing runs"
    first.start()
    assert first.warm_owed, "a daemon that dies while it loads owes it"
    assert taken_over(rig).warm_owed
    first.note_warm_owed(False)
    assert not taken_over(rig).warm_owed
    first.note_warm_owed(True)
    assert taken_over(rig).warm_owed
    first.note_warm_owed(False)
    rig.end(rig.spawn.started[0], 1)
    rig.clock.now += 60
    first.tick()
    assert len(rig.spawn.started) == 2
    assert first.warm_owed


def test_what_an_earlier_version_recorded_owes_nothing(rig: Rig) -> None:
    first = rig.make()
    first.start()
    record = backend_record.read("glm", rig.directory)
    assert record is not None
    backend_record.write(msgspec.structs.replace(record, warm_owed=None), rig.directory)
    assert not taken_over(rig).warm_owed


def test_a_baseline_that_cannot_be_written_changes_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = rig.make()
    supervisor.start()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backend_record, "write", full)
    supervisor.keep_warm(backend_record.WarmBaseline(cache_bytes=5))
    assert backend_record.read("glm", rig.directory).warm is None
    assert supervisor.identity is not None


@pytest.mark.parametrize("spoil", ["other boot", "ended", "damaged"])
def test_a_record_that_means_nothing_now_starts_a_new_one(rig: Rig, spoil: str) -> None:
    record = backend_record.BackendRecord("glm", 77, 1, (), 4096, "boot" if spoil != "other boot" else "before")
    backend_record.write(record, rig.directory)
    if spoil == "damaged":
        Path(rig.directory, "glm.json").write_text("{")
    elif spoil == "other boot":
        rig.spawn.adoptable[ProcessIdentity(77, 1)] = FakeProcess(77, [])
    supervisor = rig.make()
    supervisor.start()
    assert len(rig.spawn.started) == 1
    assert supervisor.state.plan.context_length == 8192


def test_a_record_that_cannot_be_written_is_told_and_the_backend_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backend_record, "write", full)
    supervisor = rig.make()
    supervisor.start()
    assert supervisor.identity is not None
    assert "No space left on device" in caplog.text


def test_before_its_start_it_is_recorded_with_the_word_that_finds_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    start = rig.spawn.start

    def starts(argv: list[str], **options: dict) -> FakeProcess:
        seen.append((rig.record, options["environment"]["MOETUNED_START"]))
        return start(argv, **options)

    monkeypatch.setattr(rig.spawn, "start", starts)
    supervisor = rig.make()
    supervisor.start()
    ((record, word),) = seen
    assert (record.pid, record.start_word, record.context_length) == (None, word, 8192)
    assert rig.record.pid == rig.spawn.started[0].identity.pid
    rig.end(rig.spawn.started[0], 1)
    rig.clock.now += 1
    supervisor.tick()
    assert seen[1][1] != word, "each start has a word of its own"


def intended(rig: Rig, ago: float, **more: object) -> None:
    record = backend_record.BackendRecord(
        "glm", None, None, ("server",), 4096, "boot", 0, start_word="ab" * 16, intended_at=rig.clock.now - ago, **more
    )
    backend_record.write(record, rig.directory)


def found(monkeypatch: pytest.MonkeyPatch, leader: ProcessIdentity | None, *others: ProcessIdentity) -> None:
    for where in (recorded, backend_record):
        monkeypatch.setattr(where, "find_started", lambda _word: (leader, others))


def test_one_whose_start_was_not_recorded_to_the_end_is_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    intended(rig, 0.5)
    process = FakeProcess(77, [])
    rig.spawn.adoptable[process.identity] = process
    found(monkeypatch, process.identity)
    supervisor = rig.make()
    supervisor.start()
    assert (supervisor.identity, supervisor.adopted, rig.spawn.started) == (process.identity, True, [])
    assert (rig.record.pid, rig.record.start_word) == (77, "ab" * 16)
    assert supervisor.state.plan.context_length == 4096


def test_one_that_is_only_just_coming_is_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    intended(rig, 0.5)
    found(monkeypatch, None)
    supervisor = rig.make()
    supervisor.start()
    assert rig.spawn.started == []
    process = FakeProcess(77, [])
    rig.spawn.adoptable[process.identity] = process
    found(monkeypatch, process.identity)
    rig.clock.now += 1
    supervisor.tick()
    assert (supervisor.identity, rig.spawn.started) == (process.identity, [])


def test_where_nothing_came_of_a_start_it_is_made_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    intended(rig, 0.5)
    found(monkeypatch, None)
    supervisor = rig.make()
    supervisor.start()
    for _ in range(3):
        rig.clock.now += 1
        supervisor.tick()
    assert len(rig.spawn.started) == 1
    assert supervisor.state.plan.context_length == 8192


def test_an_old_intention_needs_no_waiting(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    intended(rig, 60)
    found(monkeypatch, None)
    rig.make().start()
    assert len(rig.spawn.started) == 1


@pytest.mark.parametrize("alive", [True, False])
def test_a_restart_that_was_begun_is_finished_by_the_next_daemon(rig: Rig, alive: bool) -> None:
    first = rig.make()
    first.start()
    first.healthy()
    rig.clock.now += 100
    first.restart(sv.LaunchPlan(2048, 0))
    at = rig.clock.now
    assert (rig.record.ending, rig.record.next_plan, rig.record.relief_at) == (True, sv.LaunchPlan(2048, 0), at)
    first.let_go()
    rig.clock.now += 5
    process = FakeProcess(rig.spawn.started[0].identity.pid, [])
    if alive:
        rig.spawn.adoptable[process.identity] = process
    second = rig.make()
    second.start()
    if alive:
        assert process.signals == ["TERM"]
        assert len(rig.spawn.started) == 1
        rig.end(process, None)
    assert [each.argv[4] for each in rig.spawn.started] == ["8192", "2048"]
    assert second.relief_restarts[:1] == (at,), "it counts for the cool-down"


def test_one_that_was_being_stopped_is_started_anew_once_it_has_ended(rig: Rig) -> None:
    first = rig.make()
    first.start()
    first.stop()
    first.let_go()
    process = FakeProcess(rig.spawn.started[0].identity.pid, [])
    rig.spawn.adoptable[process.identity] = process
    second = rig.make()
    second.start()
    assert process.signals == ["TERM"]
    rig.clock.now += TIMING.terminate_seconds
    second.tick()
    assert process.signals == ["TERM", "KILL"], "one that hangs in its end is not waited for without end"
    rig.end(process, None)
    assert len(rig.spawn.started) == 2
    assert not second.relief_restarts


def test_a_stop_after_a_restart_leaves_no_record(rig: Rig) -> None:
    supervisor, prepare = prepared(rig)
    prepare.answer()
    supervisor.healthy()
    supervisor._prepared = None
    supervisor.restart(sv.LaunchPlan(2048, 0))
    rig.end(rig.spawn.started[0], 0)
    assert len(prepare.asked) == 1
    supervisor.stop()
    assert supervisor.stopped
    assert rig.record is None


def test_what_was_given_back_is_known_to_the_next_daemon(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    supervisor.note_return(rig.clock.now - 5, "it led to relief")
    assert backend_record.read("glm", rig.directory).return_blocked == "it led to relief"
    supervisor.restart(sv.LaunchPlan(2048, 0))
    rig.end(rig.spawn.started[0], 0)
    record = backend_record.read("glm", rig.directory)
    assert (record.returned_at, record.return_blocked) == (rig.clock.now - 5, "it led to relief")
    successor = taken_over(rig)
    assert (successor.returned_at, successor.return_blocked) == (rig.clock.now - 5, "it led to relief")


def giving_back(rig: Rig) -> ProcessSupervisor:
    """It is told to end, to be started with more; the daemon that did it is gone."""
    first = rig.make()
    first.start()
    first.healthy()
    first.give_back(sv.LaunchPlan(16384, 64), "there is room again")
    assert rig.spawn.started[0].signals == ["TERM"]
    return first


def ended_unseen(rig: Rig, first: ProcessSupervisor) -> None:
    """Nobody sees the process that was started last end."""
    first.let_go()
    rig.spawn.adoptable.clear()


@pytest.mark.parametrize("killed", ["while it ends", "while it loads"])
def test_what_does_not_load_with_what_an_earlier_daemon_gave_back_is_started_as_before(rig: Rig, killed: str) -> None:
    first = giving_back(rig)
    if killed == "while it loads":
        rig.end(rig.spawn.started[0], 0)
    first.let_go()
    second = taken_over(rig)
    process = rig.spawn.adoptable[second.identity]
    if killed == "while it ends":
        rig.end(process, None)
        process = rig.spawn.started[1]
    assert rig.record.fallback == sv.LaunchPlan(8192, 64)
    rig.end(process, 1)
    assert second.state.plan == sv.LaunchPlan(8192, 64)
    assert "exited with code 1 while it loaded" in (second.return_blocked or "")


def test_what_ended_unseen_with_what_was_given_back_is_started_as_before(rig: Rig) -> None:
    first = giving_back(rig)
    rig.end(rig.spawn.started[0], 0)
    ended_unseen(rig, first)
    second = rig.make()
    second.start()
    assert rig.spawn.started[-1].argv[4] == "8192"
    assert "before it was seen to be ready" in (second.return_blocked or "")
    assert rig.record.fallback is None


def test_what_was_ready_with_what_was_given_back_keeps_it(rig: Rig) -> None:
    first = giving_back(rig)
    rig.end(rig.spawn.started[0], 0)
    first.healthy()
    assert rig.record.fallback is None
    first.let_go()
    second = taken_over(rig)
    rig.end(rig.spawn.adoptable[second.identity], 1)
    assert (second.state.plan.context_length, second.return_blocked) == (16384, None)


def test_a_give_back_whose_start_was_not_made_is_made_by_the_next_daemon(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, None)
    first = giving_back(rig)
    rig.end(rig.spawn.started[0], 0)
    ended_unseen(rig, first)
    backend_record.write(
        msgspec.structs.replace(rig.record, pid=None, start_ticks=None, intended_at=None), rig.directory
    )
    second = rig.make()
    second.start()
    assert rig.spawn.started[-1].argv[4] == "16384"
    rig.end(rig.spawn.started[-1], 1)
    assert second.state.plan.context_length == 8192


@pytest.mark.parametrize("alive", [True, False])
def test_the_context_that_somebody_chose_is_known_to_the_next_daemon(rig: Rig, alive: bool) -> None:
    first = rig.make()
    first.start()
    first.healthy()
    first.restart_by_hand(sv.LaunchPlan(4096, 64), 4096)
    assert rig.record.chosen_context == 4096
    rig.end(rig.spawn.started[0], 0)
    first.let_go()
    if alive:
        second = taken_over(rig)
    else:
        second = rig.make()
        second.start()
        assert rig.spawn.started[-1].argv[4] == "4096"
    assert (second.chosen_context, second.state.plan.context_length) == (4096, 4096)
    second.healthy()
    second.restart(sv.LaunchPlan(2048, 64))
    assert rig.record.chosen_context is None, "relief wants another one"


def test_the_context_that_somebody_chose_under_another_config_is_forgotten(rig: Rig) -> None:
    first = rig.make()
    first.start()
    first.healthy()
    first.restart_by_hand(sv.LaunchPlan(4096, 64), 4096)
    rig.end(rig.spawn.started[0], 0)
    ended_unseen(rig, first)
    second = rig.make(backend(context=Context(preferred=16384)))
    second.start()
    assert (second.chosen_context, rig.spawn.started[-1].argv[4]) == (None, "16384")


@pytest.mark.parametrize("record", ["none", "of one that ended", "damaged"])
def test_one_that_could_not_be_recorded_is_found_by_its_owner(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    if record == "of one that ended":
        backend_record.write(backend_record.BackendRecord("glm", 5, 50, (), 8192, "boot"), rig.directory)
    elif record == "damaged":
        backend_record.write(backend_record.BackendRecord("glm", 5, 50, (), 8192, "boot"), rig.directory)
        Path(rig.directory, "glm.json").write_text("{")
    process = FakeProcess(77, [])
    rig.spawn.adoptable[process.identity] = process
    owned: list[str] = []

    def find_owned(owner: str) -> ProcessIdentity:
        owned.append(owner)
        return process.identity

    plan = msgspec.json.encode(sv.LaunchPlan(2048, 0)).decode()
    monkeypatch.setattr(recorded, "find_owned", find_owned)
    monkeypatch.setattr(recorded, "variables", lambda _pid, _names: {recorded.PLAN_VARIABLE: plan})
    supervisor = rig.make()
    supervisor.start()
    assert (supervisor.identity, rig.spawn.started) == (process.identity, [])
    assert supervisor.state.plan == sv.LaunchPlan(2048, 0)
    assert owned == [f"{rig.directory}/glm"]


def test_what_another_manager_ran_is_not_taken_for_a_child(rig: Rig) -> None:
    """Its unit goes on to start it; ended by moetuned it would run twice. What was done for its memory counts."""
    record = backend_record.BackendRecord(
        "glm", 77, 770, (), 4096, "boot", relief_restarts_at=(990.0,), ending=True,
        next_plan=sv.LaunchPlan(1024, 0), managed=True,
    )  # fmt: skip
    backend_record.write(record, rig.directory)
    theirs = FakeProcess(77, [])
    rig.spawn.adoptable[theirs.identity] = theirs
    supervisor = rig.make()
    supervisor.start()
    assert supervisor.identity == rig.spawn.started[0].identity
    assert supervisor.state.plan == sv.LaunchPlan(8192, 64)
    assert supervisor.relief_restarts == (990.0,)
    assert theirs.signals == []
    theirs.close()
