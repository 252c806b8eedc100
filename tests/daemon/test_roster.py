"""The roster: config in, processes found and lost, reloads, and what is being ended."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pytest
from daemon_fakes import FakeClock, FakeProcess, FakeSpawn, HeldWorkers
from supervisor_rig import use_fakes

from moetuned.daemon import roster as roster_module
from moetuned.daemon import warm_baseline as baseline_module
from moetuned.daemon.discovery import FoundBackend
from moetuned.daemon.loop import Loop
from moetuned.daemon.model_care import ModelCare
from moetuned.daemon.probing import Probing
from moetuned.daemon.roster import Roster
from moetuned.decide import detector
from moetuned.decide.detector_memory import MemoryAxis
from moetuned.decide.supervision import LaunchPlan
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend, Config, Context, Watch
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendSample
from moetuned.schema.supervise import SuperviseProcess, SuperviseUnit
from moetuned.schema.verdict import MemoryState
from moetuned.state import backend_record

GLM = Backend("glm", supervise=SuperviseProcess(command=["server", "-c", "{context}"]), url="http://127.0.0.1:8080")


def found(pid: int, port: int = 8080, session: int | None = None) -> FoundBackend:
    description = BackendDescription(url=f"http://127.0.0.1:{port}", context_length=4096)
    return FoundBackend(ProcessIdentity(pid, pid * 10), "llama-server", description, (), session or pid, None)


class Rig:
    def __init__(self, directory: str, spawn: FakeSpawn) -> None:
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.workers = HeldWorkers()
        self.spawn = spawn
        self.ended: set[int] = set()
        self.directory = directory
        self.said: list[tuple[EventName, str, str]] = []
        self.restarting: list[bool] = []
        care = ModelCare(self.loop, self.clock, self.workers)
        probing = Probing(self.workers, self.clock)
        self.left_open: list[str] = []
        self.roster = Roster(
            self.loop,
            self.clock,
            self.workers,
            care,
            probing,
            directory,
            self.say,
            leave_open=self.left_open.append,
        )

    def say(self, name: EventName, backend: str, message: str, /, *, restarting: bool) -> None:
        self.said.append((name, backend, message))
        self.restarting.append(restarting)

    def configure(self, *backends: Backend, discover: bool = True) -> None:
        self.roster.configure(Config(backends=list(backends), watch=Watch(discover=discover)))

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        for watched in self.roster:
            watched.sample = BackendSample(watched.name, process_gone=self.is_gone(watched.process))
        self.roster.follow(self.clock.now)

    def is_gone(self, process: ProcessIdentity | None) -> bool:
        return process is None or process.pid in self.ended

    def find(self, *processes: FoundBackend) -> None:
        self.clock.now += 6
        self.roster.discover(self.clock.now)
        self.workers.finish("looking for running backends", processes)

    def end(self, index: int, code: int = 0) -> None:
        self.spawn.started[index].end(code)
        self.loop.run_once(0)

    def pids(self) -> dict[str, int | None]:
        return {each.name: None if each.process is None else each.process.pid for each in self.roster}


@pytest.fixture
def rig(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    spawn = FakeSpawn()
    rig = Rig(str(tmp_path / "backends"), spawn)
    use_fakes(spawn, monkeypatch)
    monkeypatch.setattr(roster_module, "boot_id", spawn.boot_id)
    monkeypatch.setattr(roster_module, "is_alive", lambda identity: identity.pid not in rig.ended)
    monkeypatch.setattr(roster_module, "has_ended", lambda identity: identity.pid in rig.ended)
    monkeypatch.setattr(roster_module, "memory_cgroup", lambda pid: MemoryCgroup(f"/cgroup/of/{pid}", 2))
    yield rig
    rig.loop.close()
    for process in spawn.started:
        process.close()


def test_found_backends_get_names_and_are_followed(rig: Rig) -> None:
    rig.configure()
    rig.find(found(20), found(21, port=8081))
    rig.tick()
    assert rig.pids() == {"llama-server-8080": 20, "llama-server-8081": 21}
    watched = rig.roster.get("llama-server-8080")
    assert (watched.kind, watched.url, watched.cgroup.directory) == (
        "llama-server", "http://127.0.0.1:8080", "/cgroup/of/20",
    )  # fmt: skip
    rig.ended.add(20)
    rig.tick()
    assert rig.pids() == {"llama-server-8080": None, "llama-server-8081": 21}
    rig.find(found(30), found(21, port=8081))
    assert rig.pids() == {"llama-server-8080": 30, "llama-server-8081": 21}


def test_one_that_nobody_named_is_forgotten_some_time_after_its_end(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rig.configure()
    rig.find(found(20))
    rig.ended.add(20)
    rig.tick()
    ends = [record.levelname for record in caplog.records if "process 20 ended" in record.getMessage()]
    assert ends == ["INFO"]
    assert rig.said == []
    rig.tick(roster_module.FORGET_SECONDS - 10)
    assert rig.pids() == {"llama-server-8080": None}
    rig.tick(20)
    assert rig.pids() == {}


def test_one_that_nobody_supervises_is_known_to_the_next_daemon(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline_module, "has_ended", lambda identity: identity.pid in rig.ended)
    warm = backend_record.WarmBaseline((backend_record.WarmSpeed(1, 90.0, 1e6),), 5 << 30, thrash_begun_at=3.0)
    rig.configure(Backend("mine", url="http://127.0.0.1:8081"))
    rig.find(found(20), found(21, port=8081))
    for watched in rig.roster:
        assert watched.warm_recorded is None
        watched.record_warm(warm)
    following = Rig(rig.directory, rig.spawn)
    following.configure(Backend("mine", url="http://127.0.0.1:8081"))
    following.find(found(20), found(21, port=8081))
    for watched in following.roster:
        assert watched.warm_recorded == warm
        assert watched.detector.paging.paging == "thrashing"
        assert watched.facts.earlier_cache_bytes == 5 << 30
    rig.ended.add(20)
    rig.tick()
    assert os.listdir(f"{rig.directory}/baselines") == ["21-210.json"]
    assert backend_record.names(rig.directory) == ()
    following.find(found(30), found(21, port=8081))
    following.loop.close()


def test_a_record_is_no_news_of_one_that_was_seen_already(rig: Rig) -> None:
    rig.configure()
    rig.find(found(20))
    watched = rig.roster.get("llama-server-8080")
    watched.record_warm(backend_record.WarmBaseline((backend_record.WarmSpeed(1, 90.0, 1e6),)))
    state = detector.initial("llama-server-8080")
    watched.detector = msgspec.structs.replace(state, phase=msgspec.structs.replace(state.phase, process=(20, 200)))
    watched.forget_process(rig.clock.now)
    rig.find(found(20))
    assert watched.detector.paging.best == ()
    assert watched.warm_recorded is not None


def hung(pid: int, by: int) -> FoundBackend:
    """One that hangs in its end: process `by` listens on its port."""
    one = found(pid)
    description = msgspec.structs.replace(one.description, url=None, url_unknown="it no longer listens")
    return msgspec.structs.replace(one, description=description, said_url=one.description.url, displaced_by=by)


def test_one_whose_port_is_another_ones_is_not_asked_there(rig: Rig) -> None:
    rig.configure()
    rig.find(found(20))
    old = rig.roster.get("llama-server-8080")
    old.http, old.http_at = {"/health": "{}"}, rig.clock.now
    rig.find(hung(20, by=30), found(30))
    assert rig.pids() == {"llama-server-8080": 20, "llama-server-pid30": 30}
    assert (old.url, old.probe, old.http) == (None, None, {})
    assert old.description.url_unknown == "it no longer listens"
    assert rig.roster.get("llama-server-pid30").url == "http://127.0.0.1:8080"
    rig.find(found(20), hung(30, by=20))
    assert old.url == "http://127.0.0.1:8080"
    assert old.probe is not None


def test_a_configured_address_goes_to_who_listens_there(rig: Rig) -> None:
    rig.configure(Backend("mine", url="http://127.0.0.1:8080"))
    rig.find(found(20))
    rig.find(hung(20, by=30), found(30))
    assert rig.pids() == {"mine": 30, "llama-server-pid20": 20}
    assert rig.roster.get("mine").url == "http://127.0.0.1:8080"
    assert rig.roster.get("llama-server-pid20").url is None


def test_one_that_cannot_be_looked_at_is_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no descriptor left nothing can be read; that says nothing of the backend."""
    rig.configure()
    rig.find(found(20))
    monkeypatch.setattr(rig, "is_gone", lambda process: True)
    rig.tick()
    assert rig.pids() == {"llama-server-8080": 20}
    rig.ended.add(20)
    rig.tick()
    assert rig.pids() == {"llama-server-8080": None}


def test_one_that_ended_while_it_was_looked_for_is_not_taken(rig: Rig) -> None:
    rig.configure()
    rig.ended.add(20)
    rig.find(found(20))
    assert rig.pids() == {}


def test_a_found_process_never_takes_a_configured_name(rig: Rig) -> None:
    entry = Backend("llama-server-8080", model="/other.gguf")
    rig.configure(entry)
    rig.find(found(20))
    assert rig.pids() == {"llama-server-8080": None, "llama-server-pid20": 20}
    assert rig.roster.get("llama-server-8080").config == entry


def test_a_new_entry_takes_over_what_was_found(rig: Rig) -> None:
    rig.configure()
    rig.find(found(20))
    rig.configure(Backend("mine", url="http://127.0.0.1:8080"))
    rig.find(found(20))
    assert rig.pids() == {"mine": 20}


def test_it_is_told_whether_a_restart_goes_on(rig: Rig) -> None:
    rig.configure(GLM)
    supervisor = rig.roster.get("glm").supervisor
    supervisor.healthy()
    supervisor.restart_by_hand(supervisor.state.plan)
    rig.workers.finish("could start again")
    rig.end(0)
    supervisor.restart_by_hand(supervisor.state.plan)
    rig.workers.finish("could start again", "its model is gone")
    rig.end(1, 1)
    told = [(name, restarting) for (name, *_), restarting in zip(rig.said, rig.restarting, strict=True)]
    assert told[1:] == [(EventName.BACKEND_NOT_RESTARTED, True), (EventName.BACKEND_DOWN, False)]


@pytest.mark.parametrize(("memory", "name"), [
    (MemoryState.NEAR_LIMIT, EventName.RELIEF_EXHAUSTED), (MemoryState.OK, EventName.BACKEND_NOT_RESTARTED),
])  # fmt: skip
def test_relief_is_not_said_to_be_exhausted_after_memory_recovered(
    rig: Rig, memory: MemoryState, name: EventName
) -> None:
    """That the old process ended may have been enough, and memory_recovered is told once."""
    rig.configure(GLM)
    watched = rig.roster.get("glm")
    watched.detector = msgspec.structs.replace(watched.detector, memory=MemoryAxis(memory))
    watched.supervisor.say(EventName.RELIEF_EXHAUSTED, "glm could not be restarted: no")
    assert rig.said[-1][0] is name


def test_what_was_told_of_a_process_that_hung_is_left_open_when_that_ends(rig: Rig) -> None:
    rig.configure(GLM)
    watched = rig.roster.get("glm")
    rig.roster.follow(rig.clock.now)
    assert watched.process is not None
    watched.hung_told = True
    rig.end(0)
    rig.roster.follow(rig.clock.now)
    assert (watched.hung_told, rig.left_open) == (False, ["glm"])


def test_what_an_entry_told_before_it_changed_is_left_open(rig: Rig) -> None:
    rig.configure(Backend("glm", url="http://127.0.0.1:8080"), Backend("other"))
    assert rig.left_open == []
    rig.configure(Backend("glm", supervise=SuperviseUnit(unit="glm.service")), Backend("other"))
    rig.configure(Backend("other"))
    assert rig.left_open == ["glm", "glm"]


def test_what_runs_in_the_unit_of_an_entry_is_no_second_backend(rig: Rig) -> None:
    """Also one that was found before the entry came: it waits until systemd has named its process."""
    process = msgspec.structs.replace(found(20), services=frozenset({"glm.service"}))
    rig.configure()
    rig.find(process)
    assert rig.pids() == {"llama-server-8080": 20}
    rig.configure(Backend("glm", supervise=SuperviseUnit(unit="glm.service")))
    rig.find(process, found(21, port=8081))
    assert rig.pids() == {"glm": None, "llama-server-8081": 21}


def test_without_discovery_only_the_config_counts(rig: Rig) -> None:
    rig.configure(Backend("mine", url="http://127.0.0.1:8081"))
    rig.find(found(20), found(21, port=8081))
    rig.configure(Backend("mine", url="http://127.0.0.1:8081"), discover=False)
    assert rig.pids() == {"mine": 21}
    rig.clock.now += 100
    rig.roster.discover(rig.clock.now)
    assert rig.workers.waiting("work") == 0


def test_at_most_so_many_are_watched(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.configure()
    many = [found(1000 + number, port=9000 + number) for number in range(roster_module.MOST_WATCHED + 5)]
    rig.find(*many)
    rig.find(*many)
    assert len(rig.pids()) == roster_module.MOST_WATCHED
    assert caplog.text.count("are not watched") == 1


def test_a_supervised_backend_is_started_followed_and_recognised(rig: Rig) -> None:
    rig.configure(GLM)
    rig.tick()
    assert rig.pids() == {"glm": 100}
    rig.find(found(101, session=100))
    assert rig.pids() == {"glm": 101}
    assert rig.roster.get("glm").description.context_length == 4096
    rig.tick()
    assert rig.pids() == {"glm": 101}


def test_a_restart_within_a_tick_is_seen_as_another_process(rig: Rig) -> None:
    rig.configure(GLM)
    rig.tick()
    glm = rig.roster.get("glm")
    glm.ready_at, glm.http, glm.http_at = rig.clock.now, {"/health": "ok"}, rig.clock.now
    glm.supervisor.healthy()
    glm.supervisor.restart(glm.supervisor.state.plan)
    rig.end(0)
    rig.tick()
    assert rig.pids() == {"glm": 101}
    assert (glm.ready_at, glm.http) == (None, {})


def test_a_young_supervised_process_that_is_no_backend_yet_is_looked_for_each_second(rig: Rig) -> None:
    def searches(seconds: int, *running: FoundBackend) -> int:
        count = 0
        for _ in range(seconds):
            rig.tick()
            rig.roster.discover(rig.clock.now)
            if rig.workers.in_flight("looking for running backends"):
                rig.workers.finish("looking for running backends", running)
                count += 1
        return count

    rig.configure(GLM)
    rig.tick()
    assert searches(8) == 8
    assert searches(60) <= 14, "not for ever"
    rig.end(0, 1)
    rig.clock.now += 60
    rig.tick()
    server = found(rig.spawn.started[-1].identity.pid)
    assert searches(2, server) == 2
    assert rig.roster.get("glm").kind == "llama-server"
    assert searches(20, server) <= 5, "once it is known, no longer"


def test_a_dead_supervised_backend_takes_nobody_elses_process(rig: Rig) -> None:
    rig.configure(GLM)
    rig.tick()
    rig.end(0, code=1)
    rig.tick(0.1)
    assert rig.pids() == {"glm": None}
    rig.find(found(20))
    assert rig.pids() == {"glm": None, "llama-server-8080": 20}


def test_its_supervisors_words_are_passed_on(rig: Rig) -> None:
    rig.configure(GLM)
    rig.end(0, code=1)
    assert rig.said[0][:2] == (EventName.BACKEND_DOWN, "glm")


def test_one_gone_from_the_config_is_ended_and_is_nobodys_meanwhile(rig: Rig) -> None:
    rig.configure(GLM)
    rig.tick()
    rig.configure()
    assert rig.spawn.started[0].signals == ["TERM"]
    assert rig.pids() == {}
    assert not rig.roster.stopped
    rig.find(found(100))
    assert rig.pids() == {}
    rig.end(0)
    rig.tick()
    assert rig.roster.stopped


def test_one_that_comes_back_while_it_ends_is_started_once_it_has(rig: Rig) -> None:
    rig.configure(GLM)
    rig.tick()
    rig.configure()
    rig.configure(GLM)
    assert len(rig.spawn.started) == 1
    rig.tick()
    rig.end(0)
    assert len(rig.spawn.started) == 2
    rig.tick()
    assert rig.pids() == {"glm": 101}
    assert rig.said == []
    assert backend_record.read("glm", rig.directory).pid == 101


def test_a_changed_entry_restarts_nothing(rig: Rig) -> None:
    rig.configure(GLM)
    rig.tick()
    changed = Backend("glm", supervise=GLM.supervise, url="http://127.0.0.1:8088", context=Context(preferred=4096))
    rig.configure(changed)
    rig.tick()
    assert rig.spawn.started[0].signals == []
    assert rig.roster.get("glm").url == "http://127.0.0.1:8088"
    assert "next time" in rig.roster.notes[0]
    rig.configure(changed)
    assert rig.roster.notes == ()


def test_one_that_is_no_longer_supervised_is_ended_and_watched_from_then_on(rig: Rig) -> None:
    rig.configure(GLM)
    rig.configure(Backend("glm", url="http://127.0.0.1:8080"))
    assert rig.spawn.started[0].signals == ["TERM"]
    assert rig.roster.get("glm").supervisor is None


def adoptable(rig: Rig, **more: object) -> FakeProcess:
    record = backend_record.BackendRecord("glm", 77, 770, (), 2048, "boot", None, rig.clock.wall() - 30, **more)
    backend_record.write(record, rig.directory)
    process = FakeProcess(77, [])
    rig.spawn.adoptable[process.identity] = process
    return process


def test_relief_restarts_before_the_daemon_died_count_for_cool_down_and_budget(rig: Rig) -> None:
    process = adoptable(rig, relief_restarts_at=(rig.clock.now - 500, rig.clock.now - 30))
    rig.configure(GLM)
    assert rig.roster.get("glm").relief.restarted_at == (rig.clock.now - 500, rig.clock.now - 30)
    assert rig.spawn.started == []
    rig.roster.close()
    assert process.closed


def test_what_was_given_back_before_the_daemon_died_is_known_until_another_config_allows_more(rig: Rig) -> None:
    process = adoptable(rig, returned_at=rig.clock.now - 30, return_blocked="it led to relief")
    rig.configure(GLM)
    glm = rig.roster.get("glm")
    assert (glm.returning.returned_at, glm.returning.blocked) == (rig.clock.now - 30, "it led to relief")
    rig.roster.allow_returns()
    assert glm.returning.blocked is None
    assert backend_record.read("glm", rig.directory).return_blocked is None
    rig.roster.close()
    assert process.closed


def test_the_first_start_of_one_that_is_taken_over_blocks_nothing(rig: Rig) -> None:
    process = adoptable(rig)
    rig.configure(GLM)
    assert rig.roster.get("glm").relief.restarted_at == ()
    assert rig.roster.get("glm").detector.paging.best == ()
    rig.roster.close()
    assert process.closed


def test_one_that_is_taken_over_has_its_warm_baseline_until_another_is_started(rig: Rig) -> None:
    warm = backend_record.WarmBaseline((backend_record.WarmSpeed(1, 90.0, 1e6),), 5 << 30, 4 << 30)
    process = adoptable(rig, warm=warm)
    rig.configure(GLM)
    rig.tick()
    glm = rig.roster.get("glm")
    assert [(one.busy_slots, one.tokens_per_second) for one in glm.detector.paging.best] == [(1, 90.0)]
    assert (glm.facts.earlier_cache_bytes, glm.cache_when_steady_bytes) == (5 << 30, 4 << 30)
    process.end(0)
    rig.loop.run_once(0)
    rig.tick(5)
    assert rig.pids() == {"glm": 100}
    assert glm.facts.earlier_cache_bytes is None
    assert glm.supervisor.warm is None


def test_one_that_comes_back_while_it_ends_keeps_its_cool_down(rig: Rig) -> None:
    rig.configure(GLM)
    rig.tick()
    rig.roster.get("glm").supervisor.restart(LaunchPlan(2048))
    rig.workers.finish("could start again")
    rig.end(0)
    at = rig.clock.now
    rig.configure()
    rig.configure(GLM)
    assert rig.roster.get("glm").relief.restarted_at == (at,)


def test_what_an_earlier_daemon_left_and_nobody_names_is_told_and_left_alone(rig: Rig) -> None:
    for name, pid in (("old", 77), ("dead", 78), ("glm", 79)):
        backend_record.write(backend_record.BackendRecord(name, pid, 1, (), 2048, "boot"), rig.directory)
    backend_record.write(backend_record.BackendRecord("unit", 80, 1, (), 2048, "boot", managed=True), rig.directory)
    rig.ended.add(78)
    rig.configure(GLM)
    rig.roster.note_orphans()
    assert len(rig.roster.notes) == 1
    assert "old" in rig.roster.notes[0]
    assert "77" in rig.roster.notes[0]


def test_the_cgroup_is_read_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster_module, "memory_cgroup", lambda _pid: MemoryCgroup("/cgroup/of/the/daemon", 2))
    rig.configure(GLM)
    rig.tick()
    monkeypatch.setattr(roster_module, "memory_cgroup", lambda _pid: MemoryCgroup("/cgroup/of/its/own", 2))
    rig.tick(1.1)
    assert rig.roster.get("glm").cgroup.directory == "/cgroup/of/its/own"


def test_stop_kill_and_close(rig: Rig) -> None:
    rig.configure(GLM)
    rig.roster.stop()
    assert not rig.roster.stopped
    rig.roster.kill()
    assert rig.spawn.started[0].signals == ["TERM", "KILL"]
    rig.end(0, -9)
    assert rig.roster.stopped
    rig.configure(GLM, Backend("glm2", supervise=GLM.supervise))
    rig.roster.close()
    assert rig.spawn.started[-1].closed
    assert rig.spawn.started[-1].signals == []
    assert os.path.exists(f"{rig.directory}/glm2.json")
