"""What relief is told of a backend, and what becomes of its decisions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moetuned.daemon import relieving
from moetuned.daemon.settings import settings_of
from moetuned.daemon.watched import Watched
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.host.model_files import read_model
from moetuned.schema.action import RestartBackend
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend, Config, Context, Mode, Relief
from moetuned.schema.event import EventName
from moetuned.schema.relief import StepName
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
        sets=lambda placeholder: True,
    )  # fmt: skip
    watched.supervisor.restart = watched.supervisor.restarts.append  # type: ignore[attr-defined]
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
    care, announcer = Care(), Announcer()
    watched.sequential_bytes_per_second = 1e6
    relieving.relieve(watched, SETTINGS, 10.0, care, announcer, None)  # type: ignore[arg-type]
    assert care.did == ["release_protection", "end"]
    (plan,) = watched.supervisor.restarts  # type: ignore[union-attr]
    assert plan.context_length < 8192
    assert (plan.prompt_cache_mib, plan.checkpoints) == (0, 8)
    ((name, backend, message),) = announcer.said
    assert (name, backend) == (EventName.BACKEND_RESTARTING, "glm")
    assert message.startswith("restarting it: headroom 10.0 MiB: restart with")
    assert "that takes about" in message
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


def test_an_unknown_limit_does_nothing(watched: Watched) -> None:
    watched.memory, watched.would_do = MemoryView(), ("something",)
    relieving.relieve(watched, SETTINGS, 10.0, Care(), None, None)  # type: ignore[arg-type]
    assert watched.would_do == ()
    assert "headroom is not known" in relieving.plan_of(watched, SETTINGS, 10.0).decision


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
