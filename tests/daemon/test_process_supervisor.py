"""The supervisor: commands carried out on a process, records kept, one process at a time."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from daemon_fakes import FakeClock, FakeProcess, FakeSpawn

from moetuned.daemon import process_supervisor as module
from moetuned.daemon import supervisor as base
from moetuned.daemon.loop import Loop
from moetuned.daemon.process_supervisor import (
    EXAMINE_SECONDS,
    Ended,
    Examine,
    Prepared,
    ProcessSupervisor,
)
from moetuned.decide import supervision as sv
from moetuned.decide.exit_cause import Cause, Ending, Obstacle
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.config import Backend, Context, SuperviseProcess
from moetuned.schema.event import EventName
from moetuned.state import backend_record

TIMING = sv.Timing(terminate_seconds=15, backoff_seconds=(1.0, 2.0), breaker_exits=3, breaker_seconds=600)
COMMAND = ["server", "-m", "{model}", "-c", "{context}", "--cache-ram", "{prompt_cache_mib}"]


def backend(**changes: object) -> Backend:
    settings: dict = {
        "name": "glm",
        "model": "/m.gguf",
        "supervise": SuperviseProcess(command=COMMAND, environment={"A": "1"}, cgroup="/sys/fs/cgroup/x"),
        "context": Context(preferred=8192, minimum=1024),
        "prompt_cache_mib": 64,
        **changes,
    }
    return Backend(**settings)


class Rig:
    def __init__(self, directory: str, spawn: FakeSpawn) -> None:
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.spawn = spawn
        self.directory = directory
        self.said: list[tuple[EventName, str]] = []

    def make(self, config: Backend | None = None, examine: Examine | None = None) -> ProcessSupervisor:
        said = lambda *each: self.said.append(each)  # noqa: E731
        return ProcessSupervisor(
            config or backend(), self.loop, self.clock, self.directory, said, TIMING, examine=examine
        )

    @property
    def record(self) -> backend_record.BackendRecord | None:
        return backend_record.read("glm", self.directory)

    def end(self, process: FakeProcess, code: int | None) -> None:
        process.end(code)
        self.loop.run_once(0)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    spawn = FakeSpawn()
    monkeypatch.setattr(module, "spawn", spawn)
    monkeypatch.setattr(base, "spawn", spawn)
    rig = Rig(str(tmp_path / "backends"), spawn)
    yield rig
    rig.loop.close()
    for process in spawn.started:
        process.close()


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


def taken_over(rig: Rig) -> ProcessSupervisor:
    """The next daemon's supervisor of the process that was started last."""
    process = FakeProcess(rig.spawn.started[-1].identity.pid, [])
    rig.spawn.adoptable[process.identity] = process
    supervisor = rig.make()
    supervisor.start()
    assert supervisor.adopted
    return supervisor


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


def test_after_letting_go_nothing_is_called_any_more(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    supervisor.let_go()
    assert rig.spawn.started[0].closed
    assert rig.spawn.started[0].signals == []
    supervisor.kill()
    rig.loop.run_once(0)
    assert rig.said == []


class Preparing:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list = []

    def __call__(self, config: Backend, plan: sv.LaunchPlan, done) -> None:
        self.asked.append((plan, done))

    def answer(self, **changes: object) -> None:
        plan, done = self.asked.pop(0)
        done(Prepared(tuple(changes.pop("command", COMMAND)), changes.pop("plan", plan), **changes))


def prepared(rig: Rig) -> tuple[ProcessSupervisor, Preparing]:
    prepare = Preparing()
    said = lambda *each: rig.said.append(each)  # noqa: E731
    supervisor = ProcessSupervisor(backend(), rig.loop, rig.clock, rig.directory, said, TIMING, prepare)
    supervisor.start()
    return supervisor, prepare


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


SHORT = sv.LaunchPlan(2048, 0)


class FakeConversations:
    def __init__(self) -> None:
        self.lost: str | None = None
        self.did: list[str] = []
        self.done: Callable[..., None] = lambda *_: None

    def why_lost(self, now: sv.LaunchPlan, then: sv.LaunchPlan) -> str | None:
        return self.lost

    def save(self, then: sv.LaunchPlan, until: float, done: Callable[[int], None]) -> None:
        self.did.append("save")
        self.done = done

    def restore(self, until: float, done: Callable[[int, int], None]) -> None:
        self.did.append("restore")
        self.done = done

    def discard(self) -> None:
        self.did.append("discard")


def ready(rig: Rig) -> ProcessSupervisor:
    supervisor = rig.make()
    supervisor.start()
    supervisor.healthy()
    return supervisor


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
    kept.done(1)
    rig.end(rig.spawn.started[0], 0)
    supervisor.tick()
    supervisor.healthy()
    assert kept.did[-1] == "restore"
    assert "discard" not in kept.did[kept.did.index("save") :]
    assert EventName.BACKEND_RESTARTED not in [name for name, _ in rig.said]
    kept.done(1, 0)
    assert kept.did[-1] == "discard"
    assert "1 conversation goes on" in rig.said[-1][1]


def test_what_was_saved_goes_when_it_does_not_come_back(rig: Rig) -> None:
    supervisor = ready(rig)
    kept = supervisor.conversations = FakeConversations()  # type: ignore[assignment]
    supervisor.restart(SHORT, seconds=30.0)
    supervisor.hear(0, rig.clock.now)
    kept.done(1)
    rig.end(rig.spawn.started[0], 0)
    assert kept.did[-1] == "save"
    rig.end(rig.spawn.started[1], 1)
    assert kept.did[-1] == "discard"


def test_conversations_that_would_be_lost_are_not_saved(rig: Rig) -> None:
    supervisor = ready(rig)
    kept = supervisor.conversations = FakeConversations()  # type: ignore[assignment]
    kept.lost = "it cannot"
    supervisor.restart(SHORT, seconds=30.0)
    supervisor.hear(0, rig.clock.now)
    assert "save" not in kept.did
    assert rig.spawn.started[0].signals == ["TERM"]


class FakeGuard:
    ended = False

    def __init__(self, identity: ProcessIdentity, seconds: float) -> None:
        self.of = (identity, seconds)

    def release(self) -> None:
        self.ended = True


def test_it_is_stopped_for_a_moment_and_not_again_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PauseGuard", FakeGuard)
    supervisor = ready(rig)
    process = rig.spawn.started[0]
    supervisor.hold()
    supervisor.hold()
    assert (supervisor.held, process.signals) == (True, ["STOP"])
    rig.clock.now += base.PAUSE_SECONDS
    supervisor.tick()
    assert (supervisor.held, process.signals) == (False, ["STOP", "CONT"])
    supervisor.hold()
    assert not supervisor.held
    rig.clock.now += base.PAUSE_AGAIN_SECONDS
    assert supervisor.pausable
    supervisor.hold()
    supervisor.restart(SHORT)
    assert process.signals == ["STOP", "CONT", "STOP", "TERM", "CONT"], (
        "a stopped process would not hear that it is to end"
    )


def test_without_a_guard_it_is_not_stopped(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(identity: ProcessIdentity, seconds: float) -> None:
        raise FileNotFoundError("there is no program timeout (coreutils)")

    monkeypatch.setattr(base, "PauseGuard", refuse)
    supervisor = ready(rig)
    supervisor.hold()
    assert (supervisor.held, rig.spawn.started[0].signals) == (False, [])


def test_paused_by_hand_it_stays_so_beyond_the_daemon(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.pause_by_hand()
    assert supervisor.paused is None
    supervisor.start()
    process = rig.spawn.started[0]
    supervisor.pause_by_hand()
    since = supervisor.paused_wall_seconds
    assert since == rig.clock.wall()
    assert not supervisor.pausable
    rig.clock.now += 5
    supervisor.pause_by_hand()
    assert supervisor.paused_wall_seconds == since
    supervisor.let_go()
    assert process.signals == ["STOP", "STOP"]
    process = FakeProcess(process.identity.pid, process.argv)
    rig.spawn.adoptable[process.identity] = process
    rig.spawn.started.append(process)
    another = rig.make()
    another.start()
    assert another.paused_wall_seconds == since
    another.resume_by_hand()
    assert (process.signals, another.paused_wall_seconds) == (["CONT"], None)
    record = backend_record.read("glm", rig.directory)
    assert record is not None
    assert record.paused_wall_seconds is None


def test_paused_by_hand_it_can_be_ended_and_restarted(rig: Rig) -> None:
    supervisor = ready(rig)
    supervisor.pause_by_hand()
    supervisor.restart(SHORT)
    assert rig.spawn.started[0].signals == ["STOP", "TERM", "CONT"]
    rig.end(rig.spawn.started[0], 0)
    assert supervisor.paused_wall_seconds is None


def test_a_restart_that_waits_is_called_off_by_a_pause(rig: Rig) -> None:
    supervisor = ready(rig)
    supervisor.hear(1, rig.clock.now)
    supervisor.restart(SHORT, seconds=30.0)
    supervisor.pause_by_hand()
    assert not supervisor.draining


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
    for where in (base, backend_record):
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
