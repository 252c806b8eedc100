"""The warming process, spoken to directly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "moetuned.host.warming_process"]


def say(text: bytes) -> tuple[int, list[dict[str, object]]]:
    done = subprocess.run(COMMAND, input=text, stdout=subprocess.PIPE, check=False, timeout=60)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def plan(path: Path, **changes: object) -> bytes:
    whole = {"paths": [str(path)], "ranges": [[0, 0, 4096]], "twice": [], "rate": None, "cgroup": None, **changes}
    return json.dumps(whole).encode() + b"\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x" * 8192)
    return path


def test_an_input_that_closes_at_once_still_gets_one_piece_and_an_answer(model: Path) -> None:
    code, lines = say(plan(model))
    assert code == 0
    assert (lines[-1]["finished"], lines[-1]["done_bytes"]) == (True, 4096)


def test_a_closed_input_ends_it_between_pieces(model: Path) -> None:
    with model.open("r+b") as file:
        file.truncate(64 << 20)
    code, lines = say(plan(model, ranges=[[0, 0, 64 << 20]]))
    assert code == 3
    assert lines[-1]["finished"] is False


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"not json\n",
        b"[]\n",
        b'{"paths": []}\n',
        b'{"paths": ["/x"], "ranges": [[1, 0, 5]], "twice": [], "rate": null, "cgroup": null}\n',
        b'{"paths": ["/x"], "ranges": [[0, 0]], "twice": [], "rate": null, "cgroup": null}\n',
        b'{"paths": "/x", "ranges": [], "twice": [], "rate": null, "cgroup": null}\n',
    ],
)
def test_a_wrong_plan_is_refused(text: bytes) -> None:
    code, lines = say(text)
    assert code == 1
    assert "plan" in str(lines[-1]["error"])


def test_it_imports_little() -> None:
    script = "import sys, moetuned.host.warming_process; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"msgspec", "subprocess", "typing", "logging", "psutil", "ctypes"} & set(loaded) - site_modules()


def site_modules() -> set[str]:
    """What this interpreter's site-packages load by themselves."""
    bare = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(bare.stdout.split())
