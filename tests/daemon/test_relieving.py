"""What relief is told of a backend, and what becomes of its decisions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from supervisor_rig import FakeCheck

from moetuned.daemon import relieving
from moetuned.daemon.conversations import Conversations
from moetuned.daemon.settings import Settings, settings_of
from moetuned.daemon.watched import Watched
from moetuned.decide.relief import ReliefState, Trial
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.host.model_files import read_model
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.action import RestartBackend
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend, Config, Context, Mode, Relief
from moetuned.schema.event import EventName
from moetuned.schema.relief import StepName
from moetuned.schema.signals import Signals
from moetuned.schema.snapshot import MemoryView, ProtectView
from moetuned.schema.verdict import MemoryState, Verdict

GIB = 1 << 30
SETTINGS = settings_of(Config(relief=Relief(mode=Mode.ACT)))
NOW = LaunchPlan(8192, 64, 4, 8, "f16")


@pytest.fixture
def watched(small_model: Path) -> Watched:
    watched = Watched("glm", Backend("glm", context=Context(preferred=8192, minimum=1024)), 0.0)
    watched.model = read_model(str(small_model))
    watched.description = BackendDescription(slots=4, cache_type_k="f16", cache_type_v="f16")
    watched.supervisor = SimpleNamespace(  # type: ignore[assignment]
        state=Supervision("glm", NOW, stage=Stage.READY), load_seconds=None, process=object(), restarts=[],
        sets=lambda value: True, knows=lambda value: True, paused_wall_seconds=None, draining=False, held=False, pausable=True, conversations=None, did=[],
        restarting=True, relief_restarts=(), check=None,
    )  # fmt: skip
    own: Any = watched.supervisor
    own.restart = lambda plan, why, *, seconds, end_seconds: own.restarts.append((plan, why, seconds, end_seconds))
    own.call_off = lambda: own.did.append("call_off")
    own.hasten = lambda seconds: own.did.append(("hasten", seconds))
    own.hold = lambda: own.did.append("hold")
    own.let_on = lambda: own.did.append("let_on")
    watched.relief = ReliefState(looks=1)
    watched.ready_at = 1.0
    watched.verdict = Verdict("glm", 5.0, memory=MemoryState.CRITICAL)
    watched.memory = MemoryView("cgroup", GIB, headroom_bytes=10 << 20, backend_anonymous_bytes=2 * GIB)
    return watched


class Care:
    def __init__(self) -> None:
        self.did: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda watched: self.did.append(name)


class Announcer:
    def __init__(self) -> None:
        self.said: list[tuple[EventName, str | None, str]] = []

    def say(self, name: EventName, backend: str | None, message: str, _reasons: object = ()) -> None:
        self.said.append((name, backend, message))


def test_everything_that_is_known(watched: Watched) -> None:
    watched.own_bytes_when_ready = GIB
    watched.protect = ProtectView("held", 77)
    facts = relieving.relief_facts(watched, SETTINGS)
    assert (facts.slots, facts.checkpoints, facts.prompt_cache_mib, facts.context_length) == (4, 8, 64, 8192)
    assert facts.slots_changeable
    assert facts.cache_type_changeable
    assert (facts.own_bytes, facts.grown_bytes, facts.locked_bytes) == (2 * GIB, GIB, 77)
    assert facts.kv is not None
    assert facts.kv.now.bytes_per_token == facts.kv_bytes_per_token
    assert relieving.relief_facts(watched, SETTINGS).kv is facts.kv  # worked out once
    watched.protect = ProtectView("released", 77)
    assert relieving.relief_facts(watched, SETTINGS).locked_bytes == 0


def test_the_longer_of_two_minima_holds(watched: Watched) -> None:
    assert relieving.relief_facts(watched, SETTINGS).minimum_context == 1024
    longer = msgspec.structs.replace(SETTINGS, minimum_context=4096)
    assert relieving.relief_facts(watched, longer).minimum_context == 4096


def test_how_long_a_restart_takes(watched: Watched) -> None:
    assert relieving.restart_seconds(watched) == (None, "neither a load of it nor its disk was measured yet")
    assert watched.model is not None
    watched.sequential_bytes_per_second = watched.model.identity.size_bytes / 20
    seconds, source = relieving.restart_seconds(watched)
    assert seconds == pytest.approx(20)
    assert "that its disk gave" in source
    assert watched.supervisor is not None
    watched.supervisor.load_seconds = 7.0
    assert relieving.restart_seconds(watched) == (7.0, "as its last load")
    watched.supervisor.load_seconds, watched.model = None, None
    assert relieving.restart_seconds(watched) == (None, "its model is not known")


def test_what_the_restart_leaves_alone_stays() -> None:
    some = RestartBackend("glm", 2048, None, "", slots=1)
    assert relieving.launch_plan(some, NOW) == LaunchPlan(2048, 64, 1, 8, "f16")
    all_of_it = RestartBackend("glm", 2048, 0, "", None, 1, 2, "q8_0")
    assert relieving.launch_plan(all_of_it, NOW) == LaunchPlan(2048, 0, 1, 2, "q8_0")


def test_steps_and_the_restart_are_carried_out_and_told(watched: Watched) -> None:
    watched.protect = ProtectView("held", 1 << 20)
    care = Care()
    relieving.relieve(watched, SETTINGS, 10.0, care, None, None)  # type: ignore[arg-type]
    assert care.did == ["release_protection"]
    ((plan, why, seconds, _),) = watched.supervisor.restarts  # type: ignore[union-attr, misc]
    assert why.startswith("headroom 10.0 MiB")
    assert plan.context_length < 8192
    assert (plan.prompt_cache_mib, plan.checkpoints) == (0, 8)
    assert seconds == 0
    assert watched.relief_reports[-1].startswith("restart: headroom 10.0 MiB: restart with")


def test_asking_for_the_plan_does_nothing(watched: Watched) -> None:
    plan = relieving.plan_of(watched, SETTINGS, 10.0)
    assert plan.decision.startswith("restart it now")
    assert [step.name for step in plan.steps] == list(StepName)
    assert watched.supervisor.restarts == []  # type: ignore[union-attr]
    assert watched.relief.restarted_at == ()


def test_while_memory_is_well_nothing_is_asked_of_the_backend(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relieving, "relief_facts", lambda *_: pytest.fail("what is known of it was gathered"))
    for state in (MemoryState.OK, MemoryState.UNKNOWN):
        watched.verdict, watched.would_do = Verdict("glm", 5.0, memory=state), ("something",)
        relieving.relieve(watched, SETTINGS, 10.0, Care(), Announcer(), None)  # type: ignore[arg-type]
        assert watched.would_do == ()


def test_no_restart_where_its_own_cgroup_keeps_page_cache_that_takes_the_place(watched: Watched) -> None:
    near(watched, MemoryState.CRITICAL)
    watched.memory = msgspec.structs.replace(watched.memory, kept_bytes=5 << 30, own_kept_bytes=4 << 30)
    steps = relieving.plan_of(watched, SETTINGS, 100.0).steps
    assert not any(step.taken for step in steps if step.restart)
    assert any("its cgroup keeps 4.0 GiB of page cache" in (step.why_not or "") for step in steps)
    watched.memory = msgspec.structs.replace(watched.memory, own_kept_bytes=0)
    assert any(step.taken for step in relieving.plan_of(watched, SETTINGS, 100.0).steps if step.restart)


def test_an_unknown_limit_does_nothing(watched: Watched) -> None:
    watched.memory, watched.would_do = MemoryView(), ("something",)
    relieving.relieve(watched, SETTINGS, 10.0, Care(), None, None)  # type: ignore[arg-type]
    assert watched.would_do == ()
    assert "headroom is not known" in relieving.plan_of(watched, SETTINGS, 10.0).decision


def near(watched: Watched, state: MemoryState, seconds_to_limit: float | None = None) -> None:
    watched.verdict = Verdict("glm", 5.0, memory=state)
    watched.memory = msgspec.structs.replace(watched.memory, seconds_to_limit=seconds_to_limit)


def relieve(watched: Watched, now: float, settings: Settings = SETTINGS) -> Any:
    relieving.relieve(watched, settings, now, Care(), None, None)  # type: ignore[arg-type]
    return watched.supervisor


def test_near_its_limit_the_restart_waits_and_is_called_off_or_hastened(watched: Watched) -> None:
    near(watched, MemoryState.NEAR_LIMIT)
    own = relieve(watched, 10.0)
    assert own.restarts[0][2] == 30.0
    own.draining = True
    near(watched, MemoryState.NEAR_LIMIT, 12.0)
    relieve(watched, 10.2)
    near(watched, MemoryState.CRITICAL)
    relieve(watched, 10.4)
    assert own.did == [("hasten", 7.0), ("hasten", 0.0)]
    near(watched, MemoryState.OK)
    relieve(watched, 10.6)
    assert own.did[2:] == ["call_off"]
    assert "called off" in watched.relief_reports[-1]
    assert watched.relief.restarted_at == ()


def test_a_restart_that_is_over_holds_up_no_other_whatever_became_of_it(watched: Watched) -> None:
    relieve(watched, 100.0)
    assert watched.relief.restarting
    relieve(watched, 101.0)
    assert watched.relief.restarting
    own: Any = watched.supervisor
    own.restarting, own.relief_restarts = False, (100.5,)
    watched.memory = msgspec.structs.replace(watched.memory, limit_bytes=None)
    relieve(watched, 102.0)
    assert not watched.relief.restarting
    assert watched.relief.restarted_at == (100.0,)
    assert watched.relief.trial is not None


def test_a_restart_that_never_began_counts_for_nothing(watched: Watched) -> None:
    """Its backend was paused by hand while it waited, or restarted by hand."""
    relieve(watched, 100.0)
    own: Any = watched.supervisor
    own.restarting, own.relief_restarts = False, (7.0,)
    relieve(watched, 101.0)
    assert len(own.restarts) == 1
    relieve(watched, 102.0)
    assert len(own.restarts) == 2, "memory is as short as before"


def test_in_a_squeeze_it_is_stopped_for_a_second_look_and_continued_when_that_finds_nothing(watched: Watched) -> None:
    watched.relief = ReliefState()
    near(watched, MemoryState.CRITICAL, 2.0)
    own = relieve(watched, 10.0)
    assert (own.did, own.restarts) == (["hold"], [])
    own.held, own.pausable = True, False
    watched.memory = msgspec.structs.replace(watched.memory, headroom_bytes=600 << 20, seconds_to_limit=None)
    near(watched, MemoryState.OK)
    relieve(watched, 10.2)
    assert own.did == ["hold", "let_on"]


def test_a_squeeze_that_the_second_look_confirms_ends_in_a_restart(watched: Watched) -> None:
    watched.relief = ReliefState()
    near(watched, MemoryState.CRITICAL, 2.0)
    own = relieve(watched, 10.0)
    own.held, own.pausable = True, False
    relieve(watched, 10.2)
    assert own.did == ["hold"]
    assert len(own.restarts) == 1


def test_the_config_can_forbid_the_pause(watched: Watched) -> None:
    watched.relief = ReliefState()
    near(watched, MemoryState.CRITICAL, 2.0)
    own = relieve(watched, 10.0, msgspec.structs.replace(SETTINGS, pause=False))
    assert own.did == []
    assert len(own.restarts) == 1


def test_what_would_let_it_not_start_again_speaks_against_its_restart(watched: Watched) -> None:
    near(watched, MemoryState.CRITICAL)
    assert watched.supervisor is not None
    check: Any = FakeCheck()
    watched.supervisor.check = check
    check.obstacle = "its model /m.gguf is not there"
    assert relieve(watched, 10.0).restarts == []
    assert watched.would_do[0].endswith("once it could start again: its model /m.gguf is not there")
    check.obstacle = None
    assert len(relieve(watched, 11.0).restarts) == 1


@pytest.mark.parametrize(("state", "restarts"), [(MemoryState.NEAR_LIMIT, 0), (MemoryState.CRITICAL, 1)])
def test_one_that_is_paused_by_hand_is_left_alone_until_memory_is_critical(
    watched: Watched, state: MemoryState, restarts: int
) -> None:
    assert watched.supervisor is not None
    watched.supervisor.paused_wall_seconds = 1.0
    near(watched, state)
    assert len(relieve(watched, 10.0).restarts) == restarts


def test_what_becomes_of_its_conversations_is_part_of_the_plan(watched: Watched) -> None:
    assert relieving.plan_of(watched, SETTINGS, 10.0).conversations is None
    assert watched.supervisor is not None
    facts = relieving.conversation_facts
    watched.supervisor.conversations = Conversations("glm", None, lambda: facts(watched))  # type: ignore[arg-type]
    assert (
        relieving.plan_of(watched, SETTINGS, 10.0).conversations
        == "its conversations are lost: which kind of server that is, is not known yet"
    )
    watched.kind, watched.url, watched.process = "llama-server", "http://127.0.0.1:1", ProcessIdentity(1, 1)
    assert "without --slot-save-path" in (relieving.plan_of(watched, SETTINGS, 10.0).conversations or "")
    assert watched.description is not None
    watched.description = msgspec.structs.replace(watched.description, slot_save_path="/slots")
    assert "go on without being read again" in (relieving.plan_of(watched, SETTINGS, 10.0).conversations or "")


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [
        ("koboldcpp", StepName.SHRINK_PROMPT_CACHE, "koboldcpp has no prompt cache that can be set"),
        ("koboldcpp", StepName.ONE_SLOT, "koboldcpp has no slots that can be set"),
        ("ollama", StepName.FEWER_CHECKPOINTS, "ollama has no context checkpoints that can be set"),
        ("llama-server", StepName.FEWER_CHECKPOINTS, "its command does not set it: no {checkpoints}"),
        ("unknown", StepName.ONE_SLOT, "its command does not set it: no {slots}"),
    ],
)
def test_what_a_kind_does_not_have_is_said_so(watched: Watched, kind: str, name: StepName, why: str) -> None:
    watched.kind = kind
    watched.supervisor.sets = lambda value: value == "context"  # type: ignore[method-assign, union-attr]
    plan = relieving.plan_of(watched, SETTINGS, 10.0)
    assert next(step for step in plan.steps if step.name is name).why_not == why


def test_checkpoints_count_only_for_a_kind_that_has_them(watched: Watched) -> None:
    watched.kind = "koboldcpp"
    watched.supervisor.sets = lambda value: value == "context"  # type: ignore[method-assign, union-attr]
    watched.description = BackendDescription(dialect=Dialect.KOBOLD)
    facts = relieving.relief_facts(watched, SETTINGS)
    assert facts.kv is not None
    assert facts.kv.checkpoint_bytes == 0


@pytest.mark.parametrize(
    ("kind", "flag"), [("llama-server", "-c "), ("koboldcpp", "--contextsize "), ("ollama", "OLLAMA_CONTEXT_LENGTH=")]
)
def test_the_owner_of_one_that_is_only_watched_is_told_what_he_can_do(watched: Watched, kind: str, flag: str) -> None:
    watched.kind, watched.supervisor = kind, None
    watched.description = BackendDescription(context_length=8192, slots=1)
    advice = relieving.advice(watched, SETTINGS, 10.0)
    assert advice is not None
    assert f"start it with {flag}" in advice
    assert f"do it yourself: start it with {flag}" in relieving.plan_of(watched, SETTINGS, 10.0).decision


def test_there_is_no_advice_for_what_moetuned_does_itself_or_does_not_know(watched: Watched) -> None:
    assert relieving.advice(watched, SETTINGS, 10.0) is None
    watched.supervisor, watched.memory = None, MemoryView()
    assert relieving.advice(watched, SETTINGS, 10.0) is None


@pytest.mark.parametrize(
    ("stage", "since", "state", "waits"),
    [
        (Stage.DRAINING, None, MemoryState.NEAR_LIMIT, True),
        (Stage.STOPPING, None, MemoryState.CRITICAL, True),
        (Stage.LOADING, None, MemoryState.NEAR_LIMIT, True),
        (Stage.LOADING, None, MemoryState.CRITICAL, False),
        (Stage.READY, 9.0, MemoryState.NEAR_LIMIT, True),
        (Stage.READY, 1.0, MemoryState.NEAR_LIMIT, False),
    ],
)
def test_of_two_under_one_limit_one_is_relieved_at_a_time(
    watched: Watched, stage: Stage, since: float | None, state: MemoryState, waits: bool
) -> None:
    near(watched, state)
    other = Watched("qwen", None, 0.0)
    other.memory = watched.memory
    draining = stage is Stage.DRAINING
    other.supervisor = SimpleNamespace(state=Supervision("qwen", NOW, stage=stage), draining=draining)  # type: ignore[assignment]
    trial = Trial((StepName.SHORTER_CONTEXT,), 0, None, 0, restart=True, since=since)
    other.relief = ReliefState(restarting=stage is not Stage.READY, trial=trial)
    assert relieving.behind(watched, (other,), SETTINGS, 10.0) == ("qwen" if waits else None)
    other.memory = msgspec.structs.replace(other.memory, limit_of="limit 8 GiB of another cgroup")
    assert relieving.behind(watched, (other,), SETTINGS, 10.0) is None


@pytest.mark.parametrize(
    ("kind", "others", "own"),
    [("prompt_cache", 0.0, 2.5e6), ("prompt_cache", 2e6, 0.0), ("prompt_cache", None, 0.0), ("outside", 0.0, 0.0)],
)
def test_what_nobody_else_grows_by_is_its_own_also_between_two_steps(
    watched: Watched, kind: str, others: float | None, own: float
) -> None:
    known = {
        "anonymous_growth_bytes_per_second": 0.0,
        "others_growth_bytes_per_second": 0.0,  # another cgroup that shares the limit is not in it
        "others_growth_to_limit_bytes_per_second": others,
        "growth_to_limit_bytes_per_second": 2.5e6,
    }
    watched.signals = Signals("glm", 5.0, 1.0, known)
    watched.memory = msgspec.structs.replace(watched.memory, growth_kind=kind)
    assert relieving.relief_facts(watched, SETTINGS).own_growth_bytes_per_second == own
