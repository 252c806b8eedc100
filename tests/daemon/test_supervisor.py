"""The supervisor: commands carried out on a process, records kept, one process at a time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from daemon_fakes import FakeClock, FakeProcess, FakeSpawn

from moetuned.daemon import supervisor as module
from moetuned.daemon.loop import Loop
from moetuned.daemon.supervisor import Prepared, Supervisor, command_for
from moetuned.decide import supervision as sv
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

    def make(self, config: Backend | None = None) -> Supervisor:
        return Supervisor(
            config or backend(), self.loop, self.clock, self.directory, lambda *each: self.said.append(each), TIMING
        )

    def end(self, process: FakeProcess, code: int | None) -> None:
        process.end(code)
        self.loop.run_once(0)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    spawn = FakeSpawn()
    monkeypatch.setattr(module, "spawn", spawn)
    rig = Rig(str(tmp_path / "backends"), spawn)
    yield rig
    rig.loop.close()
    for process in spawn.started:
        process.close()


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("{context}", "8192"),
        ("--ctx={context}", "--ctx=8192"),
        ("{model}{context}", "/{context}.gguf8192"),
        ("{prompt_cache_mib}", "64"),
        ("{slots},{checkpoints},{cache_type}", "2,8,q8_0"),
        ("{other} {", "{other} {"),
        ("$(reboot); {model}", "$(reboot); /{context}.gguf"),
    ],
)
def test_placeholders_are_replaced_once_and_nothing_else_is(argument: str, expected: str) -> None:
    assert command_for([argument], "/{context}.gguf", sv.LaunchPlan(8192, 64, 2, 8, "q8_0")) == [expected]


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


def test_for_a_restart_it_is_killed_when_its_time_is_up_not_at_the_next_look(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    supervisor.healthy()
    supervisor.restart(sv.LaunchPlan(2048, 0))
    rig.clock.now += TIMING.restart_seconds - 0.01
    rig.loop.run_once(0)
    assert rig.spawn.started[0].signals == ["TERM"]
    rig.clock.now += 0.01
    rig.loop.run_once(0)
    assert rig.spawn.started[0].signals == ["TERM", "KILL"]
    rig.end(rig.spawn.started[0], -9)
    assert len(rig.spawn.started) == 2


def test_after_a_crash_it_is_started_when_that_is_due_not_at_the_next_look(rig: Rig) -> None:
    rig.make().start()
    rig.end(rig.spawn.started[0], 1)
    rig.clock.now += TIMING.backoff_seconds[0]
    rig.loop.run_once(0)
    assert len(rig.spawn.started) == 2


def test_a_crash_loop_ends_in_the_breaker_and_a_retry_begins_anew(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    for exits in range(TIMING.breaker_exits):
        assert len(rig.spawn.started) == exits + 1
        rig.end(rig.spawn.started[-1], 1)
        rig.clock.now += 5
        supervisor.tick()
    assert [name for name, _ in rig.said] == [EventName.BACKEND_DOWN, EventName.BACKEND_DOWN]
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


def test_death_by_sigkill_names_the_oom_killer(rig: Rig) -> None:
    supervisor = rig.make()
    supervisor.start()
    rig.end(rig.spawn.started[0], -signal.SIGKILL)
    assert "OOM killer" in rig.said[0][1]


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


def taken_over(rig: Rig) -> Supervisor:
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
    assert supervisor.sets("{context}")
    assert supervisor.state.plan.context_length == 8192
    rig.end(rig.spawn.started[0], 1)
    rig.clock.now += 1
    supervisor.tick()
    assert rig.spawn.started[1].argv == ["server", "-c", "4096"]
    assert supervisor.state.plan.context_length == 4096
    assert not supervisor.sets("{context}")


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


@pytest.mark.parametrize("record", ["none", "ended", "damaged"])
def test_one_that_could_not_be_recorded_is_found_by_its_mark(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    if record != "none":
        backend_record.write(backend_record.BackendRecord("glm", 77, 1, (), 4096, "boot"), rig.directory)
    if record == "damaged":
        Path(rig.directory, "glm.json").write_text("{")
    first = rig.make()
    with monkeypatch.context() as broken:
        broken.setattr(
            backend_record, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
        first.start()
        first.healthy()
        first.restart(sv.LaunchPlan(2048, 0))
        rig.end(rig.spawn.started[0], 0)
    environment = rig.spawn.options[1]["environment"]
    identity = rig.spawn.started[1].identity
    rig.spawn.marks[environment[module.spawn.MARK]] = (identity, environment[module.spawn.PLAN])
    first.let_go()
    second = taken_over(rig)
    assert second.identity == identity
    assert len(rig.spawn.started) == 2
    assert (second.state.plan.context_length, second.state.plan.prompt_cache_mib) == (2048, 0)
    second.healthy()
    assert second.state.stage is sv.Stage.READY


def test_a_mark_with_a_plan_that_cannot_be_read_is_taken_over_all_the_same(rig: Rig) -> None:
    process = FakeProcess(500, [])
    rig.spawn.marks[f"{rig.directory}/glm"] = (process.identity, "{")
    rig.spawn.adoptable[process.identity] = process
    supervisor = rig.make()
    supervisor.start()
    assert supervisor.identity == process.identity
    assert rig.spawn.started == []


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


def prepared(rig: Rig) -> tuple[Supervisor, Preparing]:
    prepare = Preparing()
    said = lambda *each: rig.said.append(each)  # noqa: E731
    supervisor = Supervisor(backend(), rig.loop, rig.clock, rig.directory, said, TIMING, prepare)
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
