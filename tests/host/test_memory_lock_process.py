"""The locking process, spoken to directly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes.cold_file import make_cold_file

from moetuned.host import memory_lock_process as process
from moetuned.host.memory_lock_process import Lock, Plan, ReleaseError
from moetuned.host.room_left import Room

MIB = 1 << 20
COMMAND = [sys.executable, "-m", "moetuned.host.memory_lock_process"]


def say(text: bytes) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(COMMAND, input=text, stdout=subprocess.PIPE, check=False, timeout=60)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def plan(path: Path | str, **changes: object) -> dict[str, object]:
    return {
        "paths": [str(path)],
        "sizes": [4 * MIB],
        "ranges": [[0, 0, 2 * MIB]],
        "budget": 2 * MIB,
        "keep_free_bytes": 0,
        "keep_free_ratio": 0.0,
        "rate": 1 << 30,
        "cgroup": None,
        **changes,
    }


def line(whole: dict[str, object]) -> bytes:
    return json.dumps(whole).encode() + b"\n"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return make_cold_file(tmp_path / "model.gguf", 4 * MIB)


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": 2 * MIB - 1},
        {"ranges": [[0, 0, 4 * MIB]], "budget": 1 << 40},
        {"ranges": [[0, 1, 4096]]},
        {"ranges": [[0, 0, 4097]]},
        {"ranges": [[1, 0, 4096]]},
        {"ranges": [[0, 0]]},
        {"ranges": "x"},
        {"sizes": []},
        {"rate": 0},
        {"budget": None},
        {"keep_free_ratio": "x"},
    ],
    ids=str,
)
def test_a_wrong_plan_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        Plan(plan("/x", **changes))


@pytest.mark.parametrize("text", [b"", b"{}\n", b"[]\n", b"rubbish\n", line(plan("/x", budget=1))])
def test_a_wrong_plan_is_one_sentence(text: bytes) -> None:
    code, lines = say(text)
    assert code == 1
    assert "the plan is wrong" in lines[-1]["error"]


def test_the_last_page_of_a_file_need_not_be_whole() -> None:
    whole = Plan(plan("/x", sizes=[8192 + 100], ranges=[[0, 8192, 100]]))
    assert whole.goal_bytes == 100


def test_a_closed_input_releases(model: str) -> None:
    code, lines = say(line(plan(model)))
    assert code in (0, 3)
    assert lines[-1] == {"locked_bytes": 0, "released": "it was told to"}


def test_memory_that_is_not_enough_locks_nothing(model: str) -> None:
    code, lines = say(line(plan(model, keep_free_ratio=1.0)))
    assert code == 3
    assert "memory nears its limit" in lines[-1]["released"]


@pytest.mark.parametrize(
    ("path", "sizes", "sentence"),
    [("none.gguf", [4 * MIB], "cannot open"), ("model.gguf", [5 * MIB], "was replaced"), ("", [4 * MIB], "no regular")],
)
def test_a_file_that_is_not_the_model_fails(
    model: str, tmp_path: Path, path: str, sizes: list[int], sentence: str
) -> None:
    code, lines = say(line(plan(tmp_path / path, sizes=sizes)))
    assert code == 1
    assert sentence in lines[-1]["error"]


def test_a_cgroup_that_is_gone_fails(model: str) -> None:
    code, lines = say(line(plan(model, cgroup="/sys/fs/cgroup/moetuned-test-none")))
    assert code == 1
    assert "cannot lock the model from inside the backend's cgroup" in lines[-1]["error"]


def test_nothing_is_locked_where_the_kernel_would_end_the_backend_too(model: str, tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroup"
    cgroup.mkdir()
    (cgroup / "cgroup.procs").write_text("")
    (cgroup / "memory.oom.group").write_text("1\n")
    code, lines = say(line(plan(model, cgroup=str(cgroup))))
    assert code == 1
    assert "memory.oom.group" in lines[-1]["error"]


@pytest.fixture
def held(model: str, monkeypatch: pytest.MonkeyPatch) -> Lock:
    monkeypatch.setattr(process.inside_cgroup, "input_closed", lambda _seconds: False)
    monkeypatch.setattr(process.inside_cgroup, "say", lambda _line: None)
    lock = Lock(Plan(plan(model)))
    lock.take()
    assert lock.locked_bytes == 2 * MIB
    return lock


def test_what_happens_to_the_file_releases(held: Lock, model: str) -> None:
    held.look()
    os.utime(model, ns=(1, 1))
    with pytest.raises(ReleaseError, match="was written"):
        held.look()
    os.replace(make_cold_file(Path(model + ".new"), 4 * MIB), model)
    with pytest.raises(ReleaseError, match="was replaced"):
        held.look()
    os.unlink(model)
    with pytest.raises(ReleaseError, match="is gone"):
        held.look()
    held.release()
    assert held.locked_bytes == 0


@pytest.mark.parametrize(
    ("headroom", "more", "keep_bytes", "keep_ratio", "stays"),
    [
        (100, 0, 100, 0.0, True),
        (99, 0, 100, 0.0, False),
        (100, 1, 100, 0.0, False),
        (100, 0, 0, 0.1, True),
        (99, 0, 0, 0.1, False),
        (-1, 0, 0, 0.0, False),
        (999, 0, 5000, 0.0, False),
    ],
)
def test_how_much_is_to_stay_free(
    monkeypatch: pytest.MonkeyPatch, headroom: int, more: int, keep_bytes: int, keep_ratio: float, stays: bool
) -> None:
    monkeypatch.setattr(process, "rooms", lambda _cgroup: [Room("x", 10**12, 0), Room("own", 1000, 1000 - headroom)])
    lock = Lock(Plan(plan("/x", keep_free_bytes=keep_bytes, keep_free_ratio=keep_ratio)))
    if stays:
        lock.look(more)
    else:
        with pytest.raises(
            ReleaseError, match=r"^memory nears its limit: -?\d+ B of (1000 B|931 GiB) are left \((own|x)\)$"
        ):
            lock.look(more)


def test_room_that_cannot_be_read_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_cgroup: str | None) -> list[Room]:
        raise FileNotFoundError(2, "No such file or directory", "memory.stat")

    monkeypatch.setattr(process, "rooms", unreadable)
    with pytest.raises(ReleaseError, match="cannot be read"):
        Lock(Plan(plan("/x"))).look()


def test_it_imports_little() -> None:
    script = "import sys, moetuned.host.memory_lock_process; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {os.getcwd()!r}); {script}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"msgspec", "subprocess", "typing", "logging", "psutil", "pathlib"} & set(loaded)
