"""What setup makes of a machine: models that are really read, servers as they were found, and what setup wrote earlier."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.cli import setup_facts
from moetuned.cli.setup_facts import gather
from moetuned.decide.setup_config import environment_text
from moetuned.host.backend_search import FoundServer
from moetuned.host.model_search import ModelOnDisk, Search
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend, Config
from moetuned.schema.setup import Candidate, Looked, ServiceState, SetupFacts, SetupRecord, Way
from moetuned.schema.supervise import SuperviseProcess, SuperviseUnit
from moetuned.simulator import make_model


class Machine:
    """Nothing but what is set: servers, models, a config with and without setup's own file, files of units."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.servers: tuple[FoundServer, ...] = ()
        self.models: tuple[ModelOnDisk, ...] = ()
        self.others = self.current = Config()
        self.service = ServiceState()
        self.files: dict[str, str] = {}
        self.program: str | None = None
        monkeypatch.setattr(setup_facts, "find_servers", lambda *_: self.servers)
        monkeypatch.setattr(
            setup_facts, "search", lambda *_: Search(self.models, (Looked("/models", len(self.models)),))
        )
        monkeypatch.setattr(setup_facts, "load_checked", lambda instead: self.others if instead else self.current)
        monkeypatch.setattr(setup_facts, "read_system_file", self.files.get)
        monkeypatch.setattr(setup_facts, "is_booted", lambda: self.service != ServiceState())
        monkeypatch.setattr(setup_facts, "_service", lambda: self.service)
        monkeypatch.setattr(setup_facts, "_says", lambda *_: "")
        monkeypatch.setattr(setup_facts, "find_program", lambda *_: self.program)
        monkeypatch.setattr(setup_facts, "_no_program_of_unit", lambda *_: None)
        monkeypatch.setattr(setup_facts, "unreadable_for_others", lambda path: "/closed" if "closed" in path else None)
        monkeypatch.setattr(setup_facts, "in_private_tmp", lambda path: "private" in path)
        monkeypatch.setattr(setup_facts, "_config_closed", lambda: False)
        monkeypatch.setattr(
            setup_facts, "free_port", lambda taken: next(port for port in range(8080, 9000) if port not in taken)
        )

    def look(self, *named: str) -> SetupFacts:
        return gather(named, SetupRecord(), lambda _: None)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("models") / "glm air.gguf")
    make_model.main([path, "--size", "8M"])
    return path


def names(facts: SetupFacts) -> list[tuple[str, Way]]:
    return [(each.name, each.way) for each in facts.candidates]


def test_a_model_is_judged_and_gets_what_its_unit_needs(machine: Machine, model: str) -> None:
    machine.models = (ModelOnDisk(model, os.path.getsize(model)),)
    machine.service = ServiceState(installed=True, template=True)
    (one,) = machine.look().candidates
    assert (one.name, one.way, one.fits, one.problem) == ("glm-air", Way.CREATED, True, None)
    assert "tokens/s" in one.judgement
    environment = dict(one.environment)
    assert (environment["MODEL"], environment["PORT"], environment["HOST"]) == (model, "8080", "127.0.0.1")
    assert "--metrics" not in environment["MORE"], "the unit says it"


def test_without_systemd_moetuned_starts_it(machine: Machine, model: str) -> None:
    machine.models = (ModelOnDisk(model, 1),)
    (one,) = machine.look().candidates
    assert (one.way, one.environment) == (Way.CHILD, ())
    assert one.problem is not None
    assert "no llama-server on PATH" in one.problem


def test_a_model_that_its_unit_could_not_read(machine: Machine, model: str, tmp_path: Path) -> None:
    machine.service = ServiceState(template=True)
    link = tmp_path / "closed.gguf"
    link.symlink_to(model)
    (one,) = machine.look(str(link)).candidates
    assert one.problem is not None
    assert "/closed cannot be read by the user" in one.problem


def test_what_is_no_model_cannot_be_taken(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(100))
    (one,) = machine.look(str(tmp_path / "x.gguf")).candidates
    assert one.problem is not None
    with pytest.raises(ValueError, match="--model /no/such: No such file"):
        machine.look("/no/such")


def server(**more: object) -> FoundServer:
    description = BackendDescription(url="http://127.0.0.1:8080", context_length=4096)
    return FoundServer("llama-server", description, ("llama-server",), **{"pid": 812, "model_path": "/m.gguf", **more})  # type: ignore[arg-type]


def test_servers_by_who_runs_them(machine: Machine) -> None:
    machine.servers = (
        server(unit="my-llama.service"),
        server(container="box", engine="docker"),
        server(),
        server(unit="moetuned.service"),
    )
    facts = machine.look()
    assert names(facts) == [("my-llama", Way.UNIT), ("box", Way.CONTAINER), ("llama-server-8080", Way.PROCESS)]
    assert facts.candidates[0].context == 4096
    assert facts.candidates[2].url == "http://127.0.0.1:8080"


def test_what_the_config_names_is_known(machine: Machine) -> None:
    machine.servers = (server(),)
    machine.others = machine.current = Config(backends=[Backend("mine", url="http://127.0.0.1:8080")])
    (one,) = machine.look().candidates
    assert (one.name, one.named_in_config, one.entry) == ("mine", True, None)


def test_what_setup_wrote_earlier(machine: Machine) -> None:
    made = Candidate(
        "glm",
        Way.CREATED,
        "",
        environment=(("MODEL", "/m.gguf"), ("PORT", "8081"), ("MOETUNED_CONTEXT", "1"), ("MOETUNED_SLOTS", "1")),
    )
    machine.files["/etc/moetuned/backends/glm.env"] = environment_text(made, {"context glm": "8192", "slots glm": "2"})
    entries = [
        Backend("glm", supervise=SuperviseUnit("moetuned-backend@glm.service")),
        Backend("gone", url="http://127.0.0.1:9999"),
        Backend("child", model="/c.gguf", supervise=SuperviseProcess(["llama-server"]), slots=2),
        Backend("unit", supervise=SuperviseUnit("llama.service")),
    ]
    machine.current = Config(backends=entries)
    machine.servers = (server(unit="moetuned-backend@glm.service"), server(unit="llama.service"))
    machine.models = (ModelOnDisk("/m.gguf", 1),)
    facts = machine.look()
    assert names(facts) == [("unit", Way.UNIT), ("glm", Way.CREATED), ("gone", Way.KEPT), ("child", Way.CHILD)]
    assert all(each.entry is not None for each in facts.candidates)
    glm = facts.candidates[1]
    assert (glm.context, glm.slots, glm.model) == (8192, 2, "/m.gguf")


def test_no_two_have_one_name(machine: Machine, model: str, tmp_path: Path) -> None:
    other = tmp_path / "glm air.gguf"
    make_model.main([str(other), "--size", "8M"])
    machine.models = (ModelOnDisk(model, 2), ModelOnDisk(str(other), 1))
    machine.program = "/bin/true"
    facts = machine.look()
    assert [each.name for each in facts.candidates] == ["glm-air", "glm-air-2"]
    assert [each.url for each in facts.candidates] == ["http://127.0.0.1:8080", "http://127.0.0.1:8081"]


def test_whose_it_is_is_said_and_ones_own_come_first(
    machine: Machine, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.service = ServiceState(template=True)
    theirs = tmp_path / "theirs.gguf"
    theirs.write_bytes(Path(model).read_bytes())
    theirs.chmod(0o666)
    machine.models = (ModelOnDisk(str(theirs), 9), ModelOnDisk(model, 1))
    monkeypatch.setattr(setup_facts, "_MOST_JUDGED", 1)
    assert [(each.model, each.doubt) for each in machine.look().candidates] == [(model, None)]
    monkeypatch.setattr(setup_facts, "_MOST_JUDGED", 2)
    assert machine.look().candidates[1].doubt == f"{theirs} may be written by others"
    named = machine.look(str(theirs)).candidates
    assert {each.model for each in named} == {model, str(theirs)}


def test_a_server_of_another_user_is_said_to_be_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_facts, "stranger_of", lambda pid, _: "bob" if pid == 7 else None)
    description = BackendDescription(url="http://127.0.0.1:8080")
    machine.servers = tuple(
        FoundServer("llama-server", description, ("llama-server",), pid, unit=unit)
        for pid, unit in ((7, None), (8, None), (7, "llama.service"))
    )
    assert [each.doubt for each in machine.look().candidates] == ["bob started it", None, None]
