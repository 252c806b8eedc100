"""What everybody is shown."""

from __future__ import annotations

import msgspec
from daemon_fakes import FakeClock

from moetuned.daemon.heat_record import HeatRecord
from moetuned.daemon.pausing import HELD, PAUSE_SECONDS
from moetuned.daemon.process_supervisor import ProcessSupervisor
from moetuned.daemon.snapshot_view import backend_sentence, backend_view, machine_view
from moetuned.daemon.watched import Watched
from moetuned.decide.detector_phase import PhaseState
from moetuned.decide.exit_cause import Cause, Obstacle
from moetuned.decide.heat import STAYED, HeatState
from moetuned.decide.paging_axis import PagingAxis
from moetuned.decide.paging_evidence import Best
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend, Context
from moetuned.schema.heat import Heat, ModelStamp
from moetuned.schema.sample import BackendSample, MachineSample, MemInfo, Pressure, ProcessCounters, Residency, Sample
from moetuned.schema.signals import Signals
from moetuned.schema.supervise import SuperviseProcess
from moetuned.schema.verdict import Phase, Verdict


def sample(at: float, stalled_us: int | None) -> Sample:
    pressure = None if stalled_us is None else Pressure(some_total_us=stalled_us)
    return Sample(at, at, MachineSample(MemInfo(total_bytes=100), pressure_memory=pressure))


def supervised(state: Supervision) -> Watched:
    config = Backend(
        "glm", supervise=SuperviseProcess(command=["s", "{context}"]), context=Context(preferred=8192, minimum=1024)
    )
    watched = Watched("glm", config, 0.0)
    watched.supervisor = ProcessSupervisor(config, None, FakeClock(10.0), "/nowhere", lambda *_: None)  # type: ignore[arg-type]
    watched.supervisor.state = state
    watched.verdict = Verdict("glm", 10.0, phase=Phase.ABSENT)
    return watched


def test_a_found_backend() -> None:
    watched = Watched("llama-server-8080", None, 0.0)
    watched.process = ProcessIdentity(10, 1)
    watched.residency, watched.residency_at = Residency(50, 40, 10), 4.0
    view = backend_view(watched, 6.5)
    assert (view.pid, view.supervised, view.discovered) == (10, False, True)
    assert (view.residency.resident_bytes, view.residency.age_seconds) == (50, 2.5)
    assert (view.context.preferred, view.context.wanted) == (None, None)
    assert view.model_unknown == "no model known yet"


def test_unknown_residency_says_why() -> None:
    watched = Watched("a", None, 0.0)
    watched.residency = Residency(50)
    assert backend_view(watched, 1.0).residency.resident_bytes is None
    assert backend_view(watched, 1.0).residency.unknown == "not looked at yet"


def test_wanted_context_is_that_of_the_restart_under_way() -> None:
    state = Supervision("glm", LaunchPlan(8192), stage=Stage.STOPPING, next_plan=LaunchPlan(2048), restart_began=1.0)
    view = backend_view(supervised(state), 10.0)
    assert (view.context.wanted, view.context.preferred, view.context.minimum) == (2048, 8192, 1024)
    assert view.sentence == "is being restarted"


def test_why_it_does_not_run_is_said() -> None:
    waiting = Supervision("glm", LaunchPlan(8192), stage=Stage.WAITING, retry_at=15.0)
    assert backend_view(supervised(waiting), 10.0).sentence == "is not running; it is started again in 5.0 s"
    broken = Supervision("glm", LaunchPlan(8192), stage=Stage.BROKEN, exits=(1.0, 2.0))
    assert "failed 2 times" in backend_view(supervised(broken), 10.0).sentence
    foreign = Watched("mine", Backend("mine", url="http://127.0.0.1:1"), 0.0)
    foreign.verdict = Verdict("mine", 0.0, phase=Phase.ABSENT)
    assert "no running process was recognised" in backend_view(foreign, 0.0).sentence


def test_one_that_has_not_been_heard_of_is_starting_for_a_while() -> None:
    watched = supervised(Supervision("glm", LaunchPlan(8192), stage=Stage.LOADING))
    watched.verdict = Verdict("glm", 10.0, phase=Phase.UNKNOWN, phase_since=10.0)
    assert backend_view(watched, 10.0).sentence == "is starting"
    assert watched.supervisor is not None
    watched.supervisor.adopted = True
    assert backend_view(watched, 10.0).sentence == "was found running and has not answered yet"
    assert "cannot be seen" in backend_view(watched, 50.0).sentence
    watched.supervisor.state = Supervision("glm", LaunchPlan(8192), stage=Stage.READY)
    assert "cannot be seen" in backend_view(watched, 10.0).sentence


def test_one_that_has_just_ended_is_not_said_to_do_what_the_last_look_saw() -> None:
    obstacle = Obstacle(Cause.MODEL_MISSING, "its model /m.gguf is not there")
    watched = supervised(Supervision("glm", LaunchPlan(8192), stage=Stage.WAITING, obstacle=obstacle))
    for state in ("S", "T"):
        watched.verdict = Verdict("glm", 10.0, phase=Phase.IDLE)
        watched.process = ProcessIdentity(10, 1)
        watched.sample = BackendSample("glm", process=ProcessCounters(10, state=state))
        said = "is not running: its model /m.gguf is not there; it is started once it can be read"
        assert backend_sentence(watched, 10.0) == said


def test_one_that_was_stopped_for_a_second_look_is_not_said_to_need_somebody() -> None:
    watched = supervised(Supervision("glm", LaunchPlan(8192), stage=Stage.READY))
    supervisor = watched.supervisor
    assert supervisor is not None
    watched.process = ProcessIdentity(10, 1)
    watched.sample = BackendSample("glm", process=ProcessCounters(10, state="T"))
    assert "moetunectl backend resume glm" in backend_sentence(watched, 10.0)
    supervisor._held_at = 9.5  # and was let on in the same look
    assert backend_sentence(watched, 10.0) == HELD
    supervisor._held_at = 10.0 - PAUSE_SECONDS
    assert "moetunectl backend resume glm" in backend_sentence(watched, 10.0)


def test_one_that_moetuned_has_ended_for_good_is_not_said_to_do_what_the_last_look_saw() -> None:
    watched = supervised(Supervision("glm", LaunchPlan(8192), stage=Stage.STOPPED))
    watched.verdict = Verdict("glm", 10.0, phase=Phase.IDLE)
    assert backend_sentence(watched, 10.0) == "is not running"


def watched_only(phase: Phase) -> Watched:
    watched = Watched("mine", Backend("mine", url="http://127.0.0.1:1"), 0.0)
    watched.process = ProcessIdentity(10, 1)
    watched.verdict = Verdict("mine", 10.0, phase=phase)
    return watched


def test_one_that_runs_is_not_said_to_be_gone_because_what_it_does_is_not_told() -> None:
    assert "cannot be seen" in backend_sentence(watched_only(Phase.UNKNOWN), 10.0)


def test_one_found_after_the_last_look_is_not_said_to_be_gone() -> None:
    watched = watched_only(Phase.ABSENT)
    view = backend_view(watched, 10.0)
    assert (view.state, view.sentence) == ("unknown", "was found running and has not answered yet")
    watched.detector = msgspec.structs.replace(
        watched.detector, phase=PhaseState(process=(10, 1))
    )  # it was seen, and ended
    view = backend_view(watched, 10.0)
    assert view.state == "absent"
    assert "no running process" in view.sentence


def test_a_stopped_process_of_others_is_paused_at_once() -> None:
    watched = watched_only(Phase.IDLE)
    watched.sample = BackendSample("mine", process=ProcessCounters(10, state="T"))
    assert backend_sentence(watched, 10.0) == "is paused: its process is stopped (SIGSTOP or a debugger)"


def test_machine_stalls_over_the_last_two_samples() -> None:
    assert machine_view([]).memory_bytes is None
    assert machine_view([sample(1.0, 0)]).stall_memory_some_ratio is None
    assert machine_view([sample(1.0, 0), sample(3.0, 500_000)]).stall_memory_some_ratio == 0.25
    assert machine_view([sample(1.0, 0), sample(3.0, 500_000)]).memory_bytes == 100


def test_stalls_that_cannot_be_known_are_unknown() -> None:
    assert machine_view([sample(1.0, None), sample(3.0, 500_000)]).stall_memory_some_ratio is None
    assert machine_view([sample(1.0, 9), sample(3.0, 5)]).stall_memory_some_ratio is None
    assert machine_view([sample(1.0, 0), sample(1.0, 5)]).stall_memory_some_ratio is None
    assert machine_view([sample(1.0, 0), sample(2.0, 5_000_000)]).stall_memory_some_ratio == 1.0


def test_paging_out_that_did_nothing_is_said() -> None:
    watched = Watched("a", None, 0.0)
    watched.heat = HeatRecord(None, None)  # type: ignore[arg-type]
    assert backend_view(watched, 1.0).learning is None
    stamp = ModelStamp((1,), (1,), "00")
    for stayed in (False, True):
        watched.heat.state = HeatState(Heat(stamp, 1, 1, (0,), 0, 0.0, stayed))
        assert backend_view(watched, 1.0).learning == (STAYED if stayed else None)


def test_what_its_memory_is_made_of_and_its_best_speed() -> None:
    watched = Watched("a", None, 0.0)
    bare = backend_view(watched, 1.0)
    assert (bare.memory.kv_cache_bytes, bare.memory.backend_start_bytes, bare.best_tokens_per_second) == (
        None,
        None,
        None,
    )
    watched.kind, watched.description = "llama-server", BackendDescription(context_length=4096)
    watched.kv_cost = (None, None, 1000)
    watched.own_bytes_when_ready = 50
    best = (Best(1, 6.1, 0.0), Best(2, 9.0, 0.0))
    watched.detector = msgspec.structs.replace(watched.detector, paging=PagingAxis(best=best))
    watched.signals = Signals("a", 1.0, 1.0, {"busy_slots": 2.0})
    view = backend_view(watched, 1.0)
    assert (view.memory.kv_cache_bytes, view.memory.backend_start_bytes) == (4096 * 1000, 50)
    assert view.best_tokens_per_second == 9.0
