from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.container_inspect import parse_containers, parse_names
from moetuned.schema.container import ContainerFacts

RECORDED = Path(__file__).parents[1] / "data" / "containers"
"""What docker 20.10.24 and podman 4.3.1 printed of containers; paths and what is not read were left out."""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("docker-running", {"name": "llama", "status": "running", "pid": 31240, "exit_code": 0, "policy": "always"}),
        ("docker-killed", {"name": "llama-x", "status": "exited", "pid": None, "exit_code": 137, "policy": "no"}),
        ("docker-start-failed", {"name": "bad", "status": "created", "pid": None, "exit_code": 127}),
        ("docker-restarting", {"name": "crash", "status": "restarting", "pid": None, "exit_code": 3}),
        ("podman-running", {"name": "llama", "status": "running", "pid": 30414, "policy": "always"}),
        ("podman-stopped", {"name": "llama", "status": "exited", "pid": None, "exit_code": 0, "stopped_by_user": None}),
    ],
)
def test_recorded(name: str, expected: dict[str, object]) -> None:
    (found,) = parse_containers((RECORDED / f"{name}.json").read_bytes())
    assert {key: getattr(found, key) for key in expected} == expected
    assert not found.oom_killed


def shown(**more: object) -> dict[str, object]:
    return {"Id": "ab" * 32, "Name": "/llama", "State": {"Status": "running", "Running": True, "Pid": 77}, **more}


def parsed(**more: object) -> ContainerFacts:
    return parse_containers(json.dumps([shown(**more)]).encode())[0]


def test_marks_and_policies() -> None:
    assert parsed(Config={"Labels": {"moetuned.made": "t", "a": "b"}}).token == "t"
    assert parsed(Config={"Labels": None}).token is None
    assert parsed(HostConfig={"AutoRemove": True}).removed_at_end
    for name, most, policy in (("", 0, "no"), ("on-failure", 3, "on-failure:3"), ("on-failure", 0, "on-failure")):
        assert parsed(HostConfig={"RestartPolicy": {"Name": name, "MaximumRetryCount": most}}).policy == policy


@pytest.mark.parametrize("pid", [0, 1, -5, 1 << 40])
def test_a_pid_that_no_process_of_it_can_have_is_none(pid: int) -> None:
    assert parsed(State={"Status": "running", "Running": True, "Pid": pid}).pid is None


def test_one_that_is_paused_has_a_process() -> None:
    assert parsed(State={"Status": "paused", "Running": False, "Paused": True, "Pid": 77}).pid == 77


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[1]", b'[{"Id": "x"}]', b'[{"Id": "--rm", "Name": "a", "State": {"Status": "x"}}]', b"[" * 99999],
)
def test_what_is_no_list_of_containers_is_said_so(text: bytes) -> None:
    with pytest.raises(ValueError, match="what inspect printed is not understood"):
        parse_containers(text)


@given(st.binary(max_size=400))
def test_rubbish_is_a_value_error(text: bytes) -> None:
    try:
        parse_containers(text)
    except ValueError:
        pass


@given(st.integers(0, 2500), st.binary(max_size=3))
def test_a_spoilt_answer_is_understood_or_a_value_error(at: int, spoilt: bytes) -> None:
    text = (RECORDED / "docker-running.json").read_bytes()
    try:
        found = parse_containers(text[:at] + spoilt + text[at + len(spoilt) :])
    except ValueError:
        return
    assert all(one.pid is None or one.pid > 1 for one in found)


def test_names() -> None:
    text = f"{'ab' * 32} llama\n{'cd' * 32} a,b\nWARN[0000] something\n\nzz x\n{'ef' * 32}\n"
    assert parse_names(text) == {"llama": "ab" * 32, "a": "cd" * 32, "b": "cd" * 32}


@given(st.text(max_size=200))
def test_names_of_rubbish_have_ids(text: str) -> None:
    assert all(set(one) <= set("0123456789abcdef") for one in parse_names(text).values())
