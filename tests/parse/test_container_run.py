from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.container_run import container_name_problem, run_problems

SOUND = [
    ["image"],
    ["--gpus", "all", "-v", "/models:/models:ro", "-p", "127.0.0.1:8080:8080", "ghcr.io/ggml-org/llama.cpp:server", "-m", "{model}", "-t", "8", "-a", "glm"],
    ["--init", "--restart=unless-stopped", "-e", "A=b", "-eC=d", "--env-file", "/etc/llama.env", "image", "--rm", "-it", "--name", "x"],
    ["-P", "--privileged", "-v/a:/b", "-u", "0", "-h", "box", "--", "image", "-d"],
    ["--detach=false", "--rm=false", "--cgroups=split", "--label", "a=b", "image"],
    ["--memory", "64g", "--network", "host", "localhost/box:latest"],
]  # fmt: skip


@pytest.mark.parametrize("run", SOUND)
def test_sound(run: list[str]) -> None:
    assert run_problems(run) == ()


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        ([], "is empty: write the options"),
        (["docker", "run", "image"], "docker is too much: write only what comes after docker run"),
        (["run", "image"], "run is too much"),
        (["-d", "image"], "-d is not needed"),
        (["--detach", "image"], "--detach is not needed"),
        (["--name", "x", "image"], "--name is moetuned's: write the name as supervise.container"),
        (["--name=x", "image"], "--name is moetuned's"),
        (["--rm", "image"], "--rm removes the container when it ends"),
        (["-it", "image"], "-i gives it a terminal or an input"),
        (["-Pit", "image"], "-t gives it a terminal"),
        (["--tty=true", "image"], "--tty gives it a terminal"),
        (["--pull", "always", "image"], "--pull is moetuned's"),
        (["--cidfile=/x", "image"], "--cidfile names a file"),
        (["--replace", "image"], "--replace removes a container"),
        (["--gpus all", "image"], "--gpus all is one word with a blank in it"),
        (["-v /a:/b", "image"], "-v /a:/b is one word with a blank"),
        (["-e", "HF_TOKEN", "image"], "-e HF_TOKEN takes its value from the daemon's environment"),
        (["--label", "moetuned.made=1", "image"], "--label moetuned.made=1 is one of moetuned's own"),
        (["--cgroups=disabled", "image"], "--cgroups=disabled takes the container out of its cgroup"),
        (["--gpus", "all"], "names no image"),
        (["--gpus", "all", "-v"], "-v has no value"),
        (["--"], "names no image"),
        (["an image"], "'an image' is no name of an image"),
        ([""], "'' is no name of an image"),
    ],
)
def test_problems(run: list[str], problem: str) -> None:
    assert any(one.startswith(problem) for one in run_problems(run)), run_problems(run)


def test_the_example_in_the_docs_is_sound() -> None:
    page = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
    supervised = [
        backend["supervise"]
        for block in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        for backend in yaml.safe_load(block).get("backends", [])
        if backend.get("supervise", {}).get("by") == "docker"
    ]
    assert supervised
    for one in supervised:
        assert run_problems(one["run"]) == ()
        assert container_name_problem(one["container"]) is None


@given(st.lists(st.text("-=drmitnaev glx{}/.", max_size=8), max_size=8))
def test_any_words_give_sentences(run: list[str]) -> None:
    assert all(one and "\n" not in one for one in run_problems(run))


@given(st.lists(st.text(max_size=20), max_size=6))
def test_what_comes_after_the_image_is_the_servers(arguments: list[str]) -> None:
    assert run_problems(["--network", "host", "image", *arguments]) == ()


@pytest.mark.parametrize(("name", "sound"), [("llama", True), ("glm-4.5_x", True), ("a", False), ("-x", False), ("a b", False), ("a/b", False), ("x" * 101, False)])  # fmt: skip
def test_names(name: str, sound: bool) -> None:
    assert (container_name_problem(name) is None) is sound
