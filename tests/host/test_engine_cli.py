from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.fake_container_engine import write_program

from moetuned.host import engine_cli, program_search
from moetuned.host.container import Container
from moetuned.host.engine_cli import Engine, asking, command_line
from moetuned.host.service import ServiceError
from moetuned.schema.container import ContainerRecord
from moetuned.state.service_record import ServiceRecordFile


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(program_search, "DIRECTORIES", (str(tmp_path),))
    return tmp_path


def script(directory: Path, text: str, name: str = "docker") -> None:
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o755)


def test_a_whole_life_through_the_command_line(programs: Path) -> None:
    write_program(programs / "docker", programs / "containers.json")
    keeper = ServiceRecordFile(str(programs / "state"), "docker-llama", ContainerRecord())
    container = Container("glm", "docker", "llama", ("image", "-c", "{context}"), None, {}, keeper)
    assert container.look().ended == "has no container llama"
    container.restart({"context": "2048"})
    container.restart({"context": "1024"})
    (one,), _made = json.loads((programs / "containers.json").read_text())
    assert one["words"] == ["image", "-c", "1024"]
    assert one["status"] == "running"


def test_an_engine_that_is_not_installed(programs: Path) -> None:
    with pytest.raises(ServiceError, match="there is no program podman in the system's directories; install podman"):
        Engine("podman").look("llama")
    with pytest.raises(ValueError, match="is no container engine"):
        command_line("sh")


def test_words_are_arguments_and_the_environment_is_clean(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere")
    script(programs, f'env >{programs}/env; for word; do printf "<%s>" "$word"; done >{programs}/words')
    Engine("docker").create("next", ("a=b",), ("image", "$(reboot); `id`", "a b", ""))
    words = (programs / "words").read_text()
    assert words == "<create><--pull><never><--name><next><--label><a=b><image><$(reboot); `id`><a b><>"
    names = {line.partition("=")[0] for line in (programs / "env").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "HOME", "PWD", "SHLVL", "_"}


def test_what_it_says_is_one_short_line(programs: Path) -> None:
    script(programs, "echo Error: no >&2; echo such thing >&2; yes x | head -c 5000 >&2; exit 125")
    with pytest.raises(ServiceError, match="docker stop failed with code 125: Error: no such thing x x") as caught:
        Engine("docker").stop("llama")
    assert len(str(caught.value)) < 400


def test_an_engine_that_does_not_answer_is_not_taken_for_one_without_the_container(programs: Path) -> None:
    script(programs, 'echo "Cannot connect to the Docker daemon" >&2; exit 1')
    with pytest.raises(ServiceError, match="docker ps failed with code 1: Cannot connect"):
        Engine("docker").look("llama")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kill -9 $$", "docker inspect was ended by a signal"),
        ("head -c 2000000 /dev/zero", "docker inspect printed more than 1 MiB"),
        ("echo rubbish", "docker: what inspect printed is not understood"),
    ],
)
def test_an_answer_that_makes_no_sense(programs: Path, text: str, said: str) -> None:
    script(programs, text)
    with pytest.raises(ServiceError, match=said):
        Engine("docker").look("llama")


def test_one_that_hangs_is_left_after_the_deadline(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_cli, "_LOOK_SECONDS", 0.3)
    script(programs, "exec sleep 600")
    with pytest.raises(ServiceError, match="docker inspect did not end within"):
        Engine("docker").look("llama")


def test_a_program_that_cannot_be_run() -> None:
    with pytest.raises(ServiceError, match="absent could not be run: No such file or directory"):
        asking(("/absent",))(("ps",), 1)


def test_names_of_what_runs(programs: Path) -> None:
    script(programs, f'echo "$@" >{programs}/words; echo {"a" * 64} llama,alias; echo rubbish')
    assert Engine("docker").ids() == {"llama": "a" * 64, "alias": "a" * 64}
    assert (programs / "words").read_text() == "ps --no-trunc --format {{.ID}} {{.Names}}\n"
    script(programs, "exit 1")
    with pytest.raises(ServiceError, match="docker ps failed with code 1"):
        Engine("docker").ids()
