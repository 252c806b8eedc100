from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

import pytest
from fakes.fake_container_engine import DIE_AFTER, DIE_BEFORE, FAIL, FAULTS, HANG, FakeEngine, KilledError
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moetuned.host.container import Container
from moetuned.host.service import ServiceError
from moetuned.schema.container import ContainerRecord

RUN = ("--restart", "unless-stopped", "image", "-m", "{model}", "-c", "{context}", "-np", "{slots}")
PREFERRED = {"context": "8192", "slots": "4", "prompt_cache_mib": "512"}


class MemoryKeeper:
    """A record that shares the engine's count of calls, so that each write can fail or be the last that is done."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.record = engine, ContainerRecord()

    def read(self) -> ContainerRecord:
        return self.record

    def write(self, record: ContainerRecord) -> None:
        fault = self.engine.fault()
        if fault in (FAIL, HANG):
            raise OSError(28, "No space left on device")
        self.record = record
        if fault == DIE_AFTER:
            raise KilledError


class Cgroups:
    """/proc/PID/cgroup of what the engine says that runs."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine

    def read_text(self, path: str, _limit: int) -> str:
        one = next((one for one in self.engine.running() if path == f"/proc/{one['pid']}/cgroup"), None)
        if one is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return f"0::/system.slice/docker-{one['id']}.scope\n"


@dataclasses.dataclass
class Rig:
    engine: FakeEngine
    keeper: MemoryKeeper
    tokens: int = 0

    def container(self, **more: object) -> Container:
        return Container("glm", "docker", "llama", **{
            "run": RUN, "model": "/m.gguf", "preferred": PREFERRED, "keeper": self.keeper, "ask": self.engine.ask,
            "fs": Cgroups(self.engine), "new_token": self.token, **more,
        })  # fmt: skip

    def token(self) -> str:
        self.tokens += 1
        return f"token{self.tokens}"

    def restart(self, **values: str) -> None:
        self.container().restart(values)

    def main_words(self) -> list[str]:
        one = self.engine.named("llama")
        assert one is not None
        return list(one["words"])


FOREIGN, OWN, ABSENT = "foreign", "own", "absent"


def rig_with(what: str, policy: str = "always") -> Rig:
    engine = FakeEngine()
    rig = Rig(engine, MemoryKeeper(engine))
    if what == FOREIGN:
        engine.run(engine.add("llama", ["image", "--theirs"], policy=policy))
    elif what == OWN:
        rig.restart(context="4096")
    engine.history.clear()
    engine.calls = 0
    return rig


def words(context: str = "8192", slots: str = "4") -> list[str]:
    return ["image", "-m", "/m.gguf", "-c", context, "-np", slots]


def test_where_there_is_none_it_is_made_and_started():
    rig = rig_with(ABSENT)
    assert rig.container().look().ended == "has no container llama"
    rig.restart(context="2048")
    assert rig.engine.history == ["create llama-moetuned-next", "rename llama-moetuned-next llama", "start llama"]
    assert rig.main_words() == words("2048")
    one = rig.engine.named("llama")
    assert one["labels"] == {"moetuned.backend": "glm", "moetuned.made": "token1"}
    assert rig.container().look().pid == one["pid"]


def test_its_own_is_replaced_and_what_is_not_named_stays():
    rig = rig_with(OWN)
    rig.restart(slots="1")
    assert rig.main_words() == words("4096", "1")
    assert rig.engine.history == [
        "create llama-moetuned-next", "stop llama", "rename llama llama-moetuned-old", "rename llama-moetuned-next llama", "start llama",
        "rm llama-moetuned-old",
    ]  # fmt: skip
    assert [one["name"] for one in rig.engine.containers] == ["llama"]


def test_one_of_the_users_is_kept_under_another_name_and_not_started_at_boot(caplog):
    rig = rig_with(FOREIGN)
    rig.restart(context="2048")
    kept = rig.engine.named("llama-before-moetuned")
    assert kept["words"] == ["image", "--theirs"]
    assert (kept["status"], kept["policy"]) == ("exited", "no")
    assert (
        "docker rename llama-before-moetuned llama; docker update --restart=always llama; docker start llama"
        in caplog.text
    )
    rig.engine.boot()
    assert [one["name"] for one in rig.engine.running()] == ["llama"]
    rig.restart(context="1024")
    assert rig.engine.named("llama-before-moetuned") is kept
    assert not rig.engine.two_ran


def test_a_label_that_an_image_brings_along_makes_nothing_moetuneds():
    rig = rig_with(FOREIGN)
    rig.engine.named("llama")["labels"] = {"moetuned.backend": "glm", "moetuned.made": "token0"}
    rig.restart(context="2048")
    assert rig.engine.named("llama-before-moetuned") is not None


def test_one_that_would_be_removed_by_its_end_is_left_alone():
    rig = rig_with(FOREIGN)
    rig.engine.named("llama")["rm"] = True
    with pytest.raises(ServiceError, match="--rm, so it would be lost"):
        rig.restart(context="2048")
    assert rig.engine.history == []
    assert rig.keeper.record == ContainerRecord()


def test_one_that_the_engine_would_start_at_boot_whatever_it_is_told_is_left_running():
    rig = rig_with(FOREIGN)
    rig.engine.knows_update = False
    with pytest.raises(ServiceError, match=r"unknown flag: --restart.*rename or remove it yourself"):
        rig.restart(context="2048")
    assert [one["name"] for one in rig.engine.containers] == ["llama"]
    assert rig.engine.running()


@pytest.mark.parametrize("name", ["llama-moetuned-next", "llama-before-moetuned"])
def test_a_container_that_is_in_the_way_is_named(name):
    rig = rig_with(FOREIGN)
    rig.engine.add(name)
    with pytest.raises(ServiceError, match=f"a container {name} is in the way"):
        rig.restart(context="2048")
    assert rig.engine.history == []


@pytest.mark.parametrize("what", [FOREIGN, OWN])
def test_without_the_image_the_old_one_is_not_even_stopped(what):
    rig = rig_with(what)
    rig.engine.images.clear()
    with pytest.raises(ServiceError, match=r"No such image: image$"):
        rig.restart(context="2048")
    assert not any(line.startswith("stop") for line in rig.engine.history)
    assert len(rig.engine.running()) == 1


@pytest.mark.parametrize("what", [FOREIGN, OWN])
def test_where_the_new_one_does_not_start_the_old_one_comes_back(what):
    rig = rig_with(what)
    before = rig.main_words()
    rig.engine.start_fails = lambda one: "2048" in one["words"]
    with pytest.raises(ServiceError, match=r"port is already allocated$"):
        rig.restart(context="2048")
    assert rig.main_words() == before
    assert [one["name"] for one in rig.engine.running()] == ["llama"]
    assert rig.engine.named("llama")["policy"] == ("always" if what == FOREIGN else "unless-stopped")
    assert len(rig.engine.containers) == 1
    rig.restart(context="1024")
    assert rig.main_words()[4] == "1024"


def test_where_neither_starts_the_text_says_where_the_old_one_is_and_the_next_look_tries_again():
    rig = rig_with(FOREIGN)
    rig.engine.start_fails = lambda _one: True
    with pytest.raises(
        ServiceError, match=r"could not be put back: .*llama-before-moetuned or llama and nothing of it is lost"
    ):
        rig.restart(context="2048")
    rig.engine.start_fails = lambda _one: False
    assert rig.container().look().pid is not None
    assert rig.main_words() == ["image", "--theirs"]
    assert rig.keeper.record.change is None


def test_one_that_does_not_end_is_waited_for_and_never_taken_for_one_that_stays():
    rig = rig_with(OWN)
    answer, rig.engine.answer = rig.engine.answer, lambda arguments: (
        (1, "", "did not receive an exit event\n") if arguments[0] == "stop" else answer(arguments)
    )  # fmt: skip
    container = rig.container()
    with pytest.raises(ServiceError, match="exit event; it is restarted as soon as it has ended"):
        container.restart({"context": "2048"})
    with pytest.raises(ServiceError, match="as soon as it has ended"):
        container.look()
    rig.engine.end(rig.engine.named("llama"), 137)
    assert container.look().pid is not None
    assert rig.main_words() == words("2048")


def test_the_old_one_may_be_killed_only_while_it_is_stopped():
    rig = rig_with(OWN)
    container, told = rig.container(), []
    answer = rig.engine.answer

    def noted(arguments):
        told.append((arguments[0], container.told_to_end))
        return answer(arguments)

    rig.engine.answer = noted
    container.restart({"context": "2048"})
    assert {verb for verb, ending in told if ending} == {"stop"}
    assert not container.told_to_end


@pytest.mark.parametrize(
    ("facts", "ended", "owner"),
    [
        ({"status": "exited", "code": 1}, "exited with code 1", False),
        ({"status": "exited", "code": 0}, "exited with code 0", True),
        ({"status": "exited", "code": 143}, "was ended by SIGTERM", True),
        ({"status": "exited", "code": 139}, "was ended by SIGSEGV", False),
        ({"status": "exited", "code": 137}, "was ended by SIGKILL: by the kernel's OOM killer, unless", False),
        ({"status": "exited", "code": 137, "oom": True}, "was ended by the kernel's OOM killer", False),
        ({"status": "exited", "code": 1, "policy": "always"}, "exited with code 1", True),
        ({"status": "exited", "code": 137, "policy": "always", "oom": True}, "was ended by the kernel's OOM killer", False),
        ({"status": "created"}, "has a container that is created, not started", False),
    ],
)  # fmt: skip
def test_how_it_ended(facts: Mapping[str, object], ended: str, owner: bool):
    rig = rig_with(ABSENT)
    rig.engine.add("llama", **facts)
    state = rig.container().look()
    assert state.pid is None
    assert state.ended is not None
    assert state.ended.startswith(ended)
    assert state.stopped_by_owner is owner
    assert state.oom_killed is facts.get("oom", False)
    assert not state.changing


def test_between_two_restarts_of_the_engine_it_is_changing():
    rig = rig_with(ABSENT)
    rig.engine.add("llama", status="restarting", code=1)
    assert rig.container().look().changing


def test_a_process_outside_the_containers_cgroup_is_not_believed():
    class Elsewhere(Cgroups):
        def read_text(self, path: str, limit: int) -> str:
            return "0::/init.scope\n"

    rig = rig_with(OWN)
    with pytest.raises(ServiceError, match="not in the container's cgroup here"):
        rig.container(fs=Elsewhere(rig.engine)).look()


def test_what_no_placeholder_is_for_cannot_be_set():
    rig = rig_with(OWN)
    container = rig.container()
    assert container.settable() == {"context", "slots"}
    for values in ({"prompt_cache_mib": "1"}, {"context": "--privileged"}, {"context": "1 2"}):
        with pytest.raises(ValueError, match="cannot be given"):
            container.restart(values)
    assert rig.engine.history == []


def test_a_value_that_nobody_says_starts_nothing():
    rig = rig_with(FOREIGN)
    with pytest.raises(ServiceError, match="nobody says which slots"):
        rig.container(preferred={}).restart({"context": "2048"})
    assert rig.engine.history == []


def test_what_cannot_be_recorded_is_not_begun():
    rig = rig_with(FOREIGN)
    rig.engine.faults[rig.engine.calls + 3] = FAIL
    with pytest.raises(ServiceError, match="cannot be recorded"):
        rig.restart(context="2048")
    assert rig.engine.history == []


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("what", [FOREIGN, OWN, ABSENT])
def test_a_fault_at_any_call_leaves_one_that_runs(what: str, fault: str):
    reached = 0
    for call in range(1, 60):
        rig = rig_with(what)
        theirs = rig.engine.named("llama") if what == FOREIGN else None
        rig.engine.faults = {call: fault}
        try:
            rig.restart(context="2048")
        except (ServiceError, KilledError):
            pass
        reached += not rig.engine.faults
        rig.engine.faults.clear()
        settle(rig)
        assert_sound(rig, theirs)
        if what != ABSENT or fault in (DIE_BEFORE, DIE_AFTER):
            begun = what != ABSENT or rig.engine.history
            assert len(rig.engine.running()) == (1 if begun else 0), (call, rig.engine.history)
        rig.restart(context="1024")
        assert rig.main_words()[4] == "1024"
        assert_sound(rig, theirs)
        assert len(rig.engine.running()) == 1
    assert reached > 12


def test_a_boot_in_the_middle_that_starts_both_leaves_the_new_one():
    """An engine starts at boot whatever has --restart always, so for as long as the old one is not removed yet, that too."""
    rig = rig_with(OWN)
    rig.engine.named("llama")["policy"] = "always"
    rm = next(call for call in range(1, 60) if _dies_after(rig_with(OWN), call)[-1:] == ["start llama"])
    assert _dies_after(rig, rm)[-1] == "start llama"
    rig.engine.boot()
    assert len(rig.engine.running()) == 2
    assert rig.container().look().pid == rig.engine.named("llama")["pid"]
    assert rig.main_words() == words("2048")
    assert [one["name"] for one in rig.engine.containers] == ["llama"]


def _dies_after(rig: Rig, call: int) -> list[str]:
    """What was done until that call, the last."""
    rig.engine.faults = {call: DIE_AFTER}
    with contextlib.suppress(KilledError):
        rig.restart(context="2048")
    return rig.engine.history


def settle(rig: Rig) -> None:
    """A daemon that comes anew, to an engine that does what it is told."""
    rig.container().look()
    assert rig.keeper.record.change is None


def assert_sound(rig: Rig, theirs: dict[str, object] | None) -> None:
    assert not rig.engine.two_ran, rig.engine.history
    if theirs is not None:
        assert theirs in rig.engine.containers
        assert theirs["words"] == ["image", "--theirs"]
        assert theirs["name"] in ("llama", "llama-before-moetuned")


@settings(max_examples=300)
@given(
    what=st.sampled_from([FOREIGN, OWN, ABSENT]),
    faults=st.dictionaries(st.integers(1, 60), st.sampled_from(FAULTS), max_size=6),
)
def test_many_faults_in_a_row_lose_nothing(what: str, faults: dict[int, str]):
    rig = rig_with(what)
    theirs = rig.engine.named("llama") if what == FOREIGN else None
    rig.engine.faults = dict(faults)
    for context in ("2048", "1024", "4096", "512"):
        try:
            rig.restart(context=context)
        except (ServiceError, KilledError):
            pass
        assert_sound(rig, theirs)
    rig.engine.faults.clear()
    settle(rig)
    assert_sound(rig, theirs)
    assert not [one for one in rig.engine.containers if one["name"] == "llama-moetuned-old"]
    rig.restart(context="256")
    assert rig.main_words()[4] == "256"
    assert len(rig.engine.running()) == 1


class Life(RuleBasedStateMachine):
    """moetuned, its user, crashes and boots, in any order."""

    @initialize(
        what=st.sampled_from([FOREIGN, OWN, ABSENT]), policy=st.sampled_from(["no", "always", "unless-stopped"])
    )
    def begin(self, what: str, policy: str) -> None:
        self.rig = rig_with(what, policy)
        self.container = self.rig.container()
        self.theirs = self.rig.engine.named("llama") if what == FOREIGN else None

    @rule(
        context=st.sampled_from(["256", "512", "1024"]),
        fault=st.none() | st.tuples(st.integers(1, 30), st.sampled_from(FAULTS)),
    )
    def restart(self, context: str, fault: tuple[int, str] | None) -> None:
        if fault is not None:
            self.rig.engine.faults = {self.rig.engine.calls + fault[0]: fault[1]}
        try:
            self.container.restart({"context": context})
            assert self.rig.main_words()[4] == context
            assert len(self.rig.engine.running()) == 1
        except ServiceError:
            assert fault is not None
        except KilledError:
            self.container = self.rig.container()
        self.rig.engine.faults.clear()

    @rule()
    def look(self) -> None:
        state = self.container.look()
        one = self.rig.engine.named("llama")
        assert state.pid == (one["pid"] or None if one is not None else None)

    @rule(code=st.sampled_from([0, 1, 137]))
    def ends(self, code: int) -> None:
        for one in self.rig.engine.running():
            self.rig.engine.end(one, code)

    @rule()
    def boot(self) -> None:
        self.rig.engine.boot()
        self.container = self.rig.container()

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "rig"):
            assert_sound(self.rig, self.theirs)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=20)
