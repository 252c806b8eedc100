"""Finding backends: what belongs to which entry of the config, names for the others, the model's path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from moetuned import backends
from moetuned.host import running_backends
from moetuned.host.processes import FoundProcess, ProcessIdentity, command_line, identify
from moetuned.host.running_backends import Finder, FoundBackend, address_of, belongs_to, displaced, name_for
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend, Generic


def found(url: str | None = "http://127.0.0.1:8080", kind: str = "llama-server", model: str | None = "/m.gguf"):
    return FoundBackend(ProcessIdentity(42, 1), kind, BackendDescription(url=url), (), 42, model)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (Backend("a", kind="llama-server"), True),
        (Backend("a", kind="simulator"), False),
        (Backend("a", url="http://localhost:8080"), True),
        (Backend("a", url="http://127.0.0.1:8081"), False),
        (Backend("a", url="http://127.0.0.1:8081", model="/m.gguf"), False),
        (Backend("a", model="/m.gguf"), True),
        (Backend("a", model="/other.gguf"), False),
        (Backend("a", kind="simulator", model="/m.gguf"), False),
        (Backend("a"), False),
    ],
)
def test_belongs_by_port_else_model_else_kind(entry: Backend, expected: bool) -> None:
    assert belongs_to(entry, found()) is expected


def test_an_unknown_address_belongs_to_no_entry_with_one() -> None:
    assert not belongs_to(Backend("a", url="http://127.0.0.1:8080"), found(url=None))
    assert not belongs_to(Backend("a", model="/m.gguf"), found(model=None))


def test_names() -> None:
    assert name_for(found(), []) == "llama-server-8080"
    assert name_for(found(), ["llama-server-8080"]) == "llama-server-pid42"
    assert name_for(found(url=None), []) == "llama-server-pid42"


def on_port(pid: int, port: int = 8080, session: int | None = None) -> FoundBackend:
    url = f"http://127.0.0.1:{port}"
    return FoundBackend(
        ProcessIdentity(pid, 1), "llama-server", BackendDescription(url=url), (), session or pid, None, said_url=url
    )


@pytest.mark.parametrize(
    ("listening", "addresses"),
    [
        ({20: False, 30: True}, [None, "http://127.0.0.1:8080"]),
        ({20: True, 30: False}, ["http://127.0.0.1:8080", None]),
        ({20: True, 30: True}, ["http://127.0.0.1:8080"] * 2),
        ({20: False, 30: False}, ["http://127.0.0.1:8080"] * 2),
        ({20: None, 30: True}, ["http://127.0.0.1:8080"] * 2),
        ({20: False, 30: None}, ["http://127.0.0.1:8080"] * 2),
    ],
)
def test_of_two_on_a_port_the_one_that_listens_is_asked(
    listening: dict[int, bool | None], addresses: list[str | None]
) -> None:
    found = displaced([on_port(20), on_port(30)], lambda pid, port: listening[pid] if port == 8080 else None)
    assert [one.description.url for one in found] == addresses
    for one in found:
        if one.description.url is None:
            assert one.displaced_by == 50 - one.identity.pid
            assert f"process {one.displaced_by} does" in (one.description.url_unknown or "")


def test_a_launcher_and_its_server_keep_their_address() -> None:
    both = (on_port(20), on_port(21, session=20))
    assert displaced(both, lambda pid, _port: pid == 21) == both


def test_without_a_shared_port_nothing_is_looked_at() -> None:
    def look(_pid: int, _port: int) -> bool:
        raise AssertionError

    found = (on_port(20), on_port(30, 8081), msgspec.structs.replace(on_port(40), said_url=None))
    assert displaced(found, look) == found


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the command line of the stand-in, in a directory of its own; it only waits for its input to close."""
    code = "import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    process = subprocess.Popen(
        [sys.executable, "-c", code, "-m", "moetuned.simulator", "serve", "-m", "m.gguf", "--port", "8099"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env={"LLAMA_ARG_CTX_SIZE": "2048"},
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout.read(1) == b"x"
    yield process
    process.communicate()


def test_describes_a_running_process(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    argv = (sys.executable, "-m", "moetuned.simulator", "serve", "-m", "m.gguf", "--port", "8099")
    described = running_backends.describe(identity, argv, backends.find)
    assert described is not None
    assert (described.kind, described.session) == ("simulator", sleeper.pid)
    assert described.description.url == "http://127.0.0.1:8099"
    assert described.description.context_length == 2048
    assert described.model_path == str(tmp_path / "m.gguf")
    assert running_backends.describe(identity, ("bash",), backends.find) is None


def test_one_that_has_ended_is_not_described() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    argv = (sys.executable, "-m", "moetuned.simulator", "serve", "-m", "/m.gguf")
    assert running_backends.describe(ProcessIdentity(process.pid, 1), argv, backends.find) is None


class Machine:
    """Processes by pid, in place of host.processes."""

    ProcessIdentity = ProcessIdentity

    def __init__(self) -> None:
        self.argv: dict[int, tuple[str, ...]] = {}
        self.looked: list[int] = []
        self.parents: dict[int, int] = {}

    def find(self, matches, skip) -> list[FoundProcess]:
        looked = [pid for pid in sorted(self.argv) if not skip(pid)]
        self.looked += looked
        return [FoundProcess(ProcessIdentity(pid, 1), self.argv[pid]) for pid in looked if matches(self.argv[pid])]

    def parent(self, pid: int) -> int | None:
        return self.parents.get(pid)

    @staticmethod
    def variables(_pid: int, _names: tuple[str, ...]) -> dict[str, str]:
        return {}

    @staticmethod
    def mapped_models(_pid: int) -> tuple[str, ...]:
        return ()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(running_backends, "processes", machine)
    monkeypatch.setattr(running_backends.os, "getsid", lambda pid: pid)
    return machine


SERVER = ("llama-server", "-m", "/nowhere.gguf", "--port", "8080")


def test_what_is_no_backend_is_soon_left_out_and_looked_at_again_later(machine: Machine) -> None:
    finder = Finder(backends.find)
    machine.argv = {10: ("bash",), 11: SERVER}
    for _ in range(running_backends.FULL_SEARCH_EVERY):
        assert [each.identity.pid for each in finder.find()] == [11]
    assert machine.looked.count(10) == running_backends.LOOKS
    assert machine.looked.count(11) == running_backends.FULL_SEARCH_EVERY
    machine.argv[10] = SERVER
    assert [each.identity.pid for each in finder.find()] == [10, 11]


def test_a_fork_that_becomes_a_backend_is_found_at_the_next_search(machine: Machine) -> None:
    finder = Finder(backends.find)
    machine.argv = {10: ("bash",)}
    assert finder.find() == ()
    machine.argv[10] = SERVER
    assert [each.identity.pid for each in finder.find()] == [10]
    del machine.argv[10]
    assert finder.find() == ()


OLLAMA = ("ollama", "serve")
RUNNER = ("ollama", "runner", "--model", "/nowhere/sha256-1", "--port", "43263")


def test_the_child_that_holds_the_model_stands_for_its_parent(machine: Machine) -> None:
    finder = Finder(backends.find)
    machine.argv = {10: OLLAMA, 11: SERVER}
    assert [(each.identity.pid, each.front) for each in finder.find()] == [(10, None), (11, None)]
    machine.argv |= {12: RUNNER, 13: RUNNER}
    machine.parents = {12: 10, 13: 10}
    front = ProcessIdentity(10, 1)
    assert [(each.identity.pid, each.front) for each in finder.find()] == [(11, None), (12, front), (13, front)]
    del machine.argv[12], machine.argv[13]
    assert [each.identity.pid for each in finder.find()] == [10, 11]


def test_a_llama_server_below_another_is_one_of_its_own(machine: Machine) -> None:
    machine.argv, machine.parents = {10: SERVER, 11: SERVER}, {11: 10}
    assert [each.identity.pid for each in Finder(backends.find).find()] == [10, 11]


def behind(port: int = 43263) -> FoundBackend:
    description = BackendDescription(
        url=f"http://127.0.0.1:{port}", front_url="http://127.0.0.1:11434", dialect=Dialect.OLLAMA_RUNNER
    )
    return FoundBackend(ProcessIdentity(42, 1), "ollama", description, (), 42, "/m")


def test_one_behind_another_is_known_by_the_address_that_clients_use() -> None:
    assert belongs_to(Backend("a", url="http://127.0.0.1:11434"), behind())
    assert belongs_to(Backend("a", url="http://127.0.0.1:43263"), behind())
    assert not belongs_to(Backend("a", url="http://127.0.0.1:1"), behind())
    assert name_for(behind(), []) == "ollama-11434"


def test_one_behind_another_is_asked_at_its_own_address() -> None:
    assert address_of(behind().description, "http://127.0.0.1:11434") == "http://127.0.0.1:43263"
    front = BackendDescription(url=None, front_url="http://x", dialect=Dialect.OLLAMA)
    assert address_of(front, "http://127.0.0.1:1") == "http://127.0.0.1:1"
    assert address_of(BackendDescription(url="http://127.0.0.1:2"), None) == "http://127.0.0.1:2"


def test_a_generic_one_belongs_by_its_expression_alone() -> None:
    entry = Backend("a", kind="generic", url="http://127.0.0.1:7", generic=Generic(process=r"\S+engine"))
    engine = FoundBackend(ProcessIdentity(42, 1), "generic", BackendDescription(), ("/opt/engine",), 42, None)
    assert belongs_to(entry, engine)
    assert not belongs_to(entry, msgspec.structs.replace(engine, argv=("/opt/other",)))


def test_this_process_is_no_backend() -> None:
    assert command_line(os.getpid())
    assert os.getpid() not in [each.identity.pid for each in Finder(backends.find).find()]
