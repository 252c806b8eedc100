"""What would let a backend not start."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from moetuned.daemon import obstacles
from moetuned.daemon.obstacles import find_obstacle, model_problem
from moetuned.decide.exit_cause import Cause, Obstacle
from moetuned.host.process_looks import Who
from moetuned.schema.supervise import SuperviseProcess

PLAIN = SuperviseProcess(command=["llama-server"])


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstacles, "is_taken", lambda host, port: False)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_a_model_that_is_there_and_one_that_is_not(tmp_path: Path, model: Path, free: None) -> None:
    assert find_obstacle(PLAIN, ["llama-server", "-m", str(model)], {}) is None
    found = find_obstacle(PLAIN, ["llama-server", "-m", str(tmp_path / "no.gguf")], {})
    assert found == Obstacle(Cause.MODEL_MISSING, f"its model {tmp_path}/no.gguf is not there")


def test_a_relative_model_is_below_its_directory_and_may_be_in_the_environment(
    tmp_path: Path, model: Path, free: None
) -> None:
    here = SuperviseProcess(
        command=["llama-server"], directory=str(tmp_path), environment={"LLAMA_ARG_MODEL": "m.gguf"}
    )
    assert find_obstacle(here, ["llama-server"], {}) is None
    assert find_obstacle(here, ["llama-server", "-m", "x.gguf"], {}) is not None
    assert find_obstacle(PLAIN, ["llama-server", "-m", "m.gguf"], {}) is not None, "not this process's directory"


def test_every_part_of_a_split_model_is_looked_at(tmp_path: Path) -> None:
    for number in (1, 3):
        (tmp_path / f"m-0000{number}-of-00003.gguf").write_bytes(b"GGUF")
    assert model_problem(str(tmp_path / "m-00001-of-00003.gguf")) == (
        f"its model {tmp_path}/m-00002-of-00003.gguf is not there"
    )


def test_what_can_be_opened_and_not_read(tmp_path: Path) -> None:
    assert model_problem(str(tmp_path)) == f"its model {tmp_path} cannot be read: Is a directory"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "cannot be read" in (model_problem(str(pipe)) or ""), "and nobody waits for a writer"
    (tmp_path / "loop").symlink_to("loop")
    assert "cannot be opened: Too many levels" in (model_problem(str(tmp_path / "loop")) or "")


def test_a_hostile_path_cannot_draw_on_a_terminal() -> None:
    problem = model_problem("/no/\x1b[2J" + "x" * 500)
    assert problem is not None
    assert problem.isprintable()
    assert len(problem) < 260


def test_a_port_that_another_listens_on(model: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        argv = ["llama-server", "-m", str(model), "--port", str(port)]
        found = find_obstacle(PLAIN, argv, {})
        assert found is not None
        assert found.cause is Cause.PORT_TAKEN
        assert found.text.startswith(f"port {port} is taken by ")
        assert f"(pid {os.getpid()}" in found.text
    assert find_obstacle(PLAIN, argv, {}) is None


def test_who_has_the_port_is_named_as_far_as_it_is_known(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["llama-server", "-m", str(model)]
    monkeypatch.setattr(obstacles, "is_taken", lambda host, port: (host, port) == ("127.0.0.1", 8080))
    for who, text in (
        (Who(7, 1, 1, "nginx", "nginx.service"), "nginx (pid 7, nginx.service)"),
        (Who(7, 1, 1, "nginx"), "nginx (pid 7)"),
        (None, "another process"),
    ):
        monkeypatch.setattr(obstacles, "who_listens", lambda port, who=who: who)
        found = find_obstacle(PLAIN, argv, {})
        assert found == Obstacle(Cause.PORT_TAKEN, f"port 8080 is taken by {text}")
        assert find_obstacle(PLAIN, argv, {}, Obstacle(Cause.PORT_TAKEN, "as before")).text == "as before"
        assert find_obstacle(PLAIN, argv, {}, Obstacle(Cause.MODEL_MISSING, "gone")) == found


@pytest.mark.parametrize("argv", [["docker", "run", "x", "-m", "/in/it.gguf"], ["my-server", "--port", "1"]])
def test_what_is_no_known_server_is_not_judged_by_its_words(argv: list[str]) -> None:
    assert find_obstacle(PLAIN, argv, {}) is None
