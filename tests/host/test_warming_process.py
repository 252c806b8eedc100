"""The warming process, spoken to directly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from moetuned.host.warming_backoff import Backoff
from moetuned.host.warming_process import BESIDE_BYTES_PER_SECOND, SLOWLY_BYTES_PER_SECOND, Reporter, _limit

COMMAND = [sys.executable, "-m", "moetuned.host.warming_process"]


def say(text: bytes) -> tuple[int, list[dict[str, object]]]:
    """Its answer while its standard input stays open."""
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(text)
        child.stdin.flush()
        if not text.endswith(b"\n"):
            child.stdin.close()
        lines = [json.loads(line) for line in child.stdout]
        return child.wait(), lines


def plan(path: Path, **changes: object) -> bytes:
    whole = {"paths": [str(path)], "ranges": [[0, 0, 4096]], "twice": [], "rate": None, "cgroup": None, **changes}
    return json.dumps(whole).encode() + b"\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x" * 8192)
    return path


def test_it_does_all_and_says_so(model: Path) -> None:
    code, lines = say(plan(model))
    assert code == 0
    assert (lines[-1]["finished"], lines[-1]["done_bytes"]) == (True, 4096)


def test_a_closed_input_ends_it(model: Path) -> None:
    with model.open("r+b") as file:
        file.truncate(64 << 20)
    slow = plan(model, ranges=[[0, 0, 64 << 20]], rate=1 << 20)
    done = subprocess.run(COMMAND, input=slow, stdout=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 3
    assert json.loads(done.stdout.splitlines()[-1])["finished"] is False


def test_a_backend_that_is_gone_ends_it(model: Path) -> None:
    with subprocess.Popen(["true"]) as child:
        pass
    code, lines = say(plan(model, backend=[child.pid, 5]))
    assert code == 3
    assert lines == [{"done_bytes": 0, "finished": False, "detail": f"there is no process {child.pid}"}]


def test_a_cgroup_that_it_may_not_join(model: Path) -> None:
    code, lines = say(plan(model, cgroup="/no/such/cgroup"))
    assert code == 1
    assert "cannot warm from inside" in str(lines[-1]["error"])
    code, lines = say(plan(model, cgroup="/no/such/cgroup", outside=True))
    assert code == 0
    assert lines[-1]["finished"] is True
    assert "from outside" in str(lines[-1]["outside"])


def test_progress_lines() -> None:
    reporter = Reporter(1000, {"outside": "x"})
    assert reporter.line(10.0, 0, None) == {"state": "running", "done_bytes": 0, "outside": "x"}
    assert reporter.line(10.1, 50, None) is None
    line = reporter.line(12.0, 200, None)
    assert line is not None
    assert (line["rate_bytes_per_second"], line["eta_seconds"]) == (100.0, 8.0)
    line = reporter.line(12.1, 210, "the disk is needed")
    assert line is not None
    assert (line["state"], line["detail"], line["rate_bytes_per_second"]) == ("paused", "the disk is needed", 0.0)
    assert "eta_seconds" not in line
    line = reporter.line(20.0, 210, None)
    assert line is not None
    assert "rate_bytes_per_second" not in line  # What it read before the pause says nothing of now.
    line = reporter.line(20.5, 260, None)
    assert line is not None
    assert line["rate_bytes_per_second"] == 100.0


def test_one_that_goes_on_slowly_says_why_and_how_long() -> None:
    reporter = Reporter(1000, {})
    reporter.line(10.0, 0, "memory is short")
    assert (reporter.line(10.3, 0, "memory is short", slowly=True) or {})["state"] == "running"
    line = reporter.line(11.3, 100, "memory is short", slowly=True)
    assert line is not None
    assert (line["detail"], line["eta_seconds"]) == ("slowly, because memory is short", 9.0)


def test_how_fast_it_may_be_beside_a_backend() -> None:
    backoff = Backoff()
    assert _limit(backoff) == BESIDE_BYTES_PER_SECOND
    backoff.works = False
    assert _limit(backoff) is None
    backoff.slowly = True
    assert _limit(backoff) == SLOWLY_BYTES_PER_SECOND


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
        b'{"paths": [], "ranges": [], "twice": [], "rate": 0, "cgroup": null}\n',
        b'{"paths": [], "ranges": [], "twice": [], "rate": null, "cgroup": null, "backend": [1]}\n',
        b'{"paths": [], "ranges": [], "twice": [], "rate": null, "cgroup": null, "backend": [-1, 5]}\n',
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
