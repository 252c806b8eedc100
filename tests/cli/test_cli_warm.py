"""`moetunectl warm`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from fakes.gguf_bytes import Q4_0, TensorSpec, gguf_bytes, moe_metadata, moe_tensors

from moetuned.api.errors import DaemonRefused, DaemonUnreachable
from moetuned.cli import warm
from moetuned.cli.main import run as moetunectl
from moetuned.cli.model_residency import filesystem_of
from moetuned.cli.warm_place import MappedBy, Place
from moetuned.cli.warm_report import Outcome
from moetuned.host.model_files import read_model
from moetuned.host.page_cache import PAGE_BYTES
from moetuned.host.page_drop import drop_pages
from moetuned.schema.snapshot import BackendView, MemoryView, ResidencyView, SelfView, Snapshot, WarmView
from moetuned.schema.verdict import Verdict

GIB = 1 << 30
NEAR = MemoryView("machine", limit_bytes=16 * GIB, headroom_bytes=GIB, file_cache_bytes=0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    # Larger than what reading the header brings into memory.
    large = TensorSpec("blk.1.attn_k.weight", (1024, 20480), Q4_0)
    path.write_bytes(gguf_bytes(moe_metadata(), [*moe_tensors(), large]))
    return path


class Answers:
    """The daemon's client."""

    error: Exception | None = DaemonUnreachable("moetuned is not running")
    views: tuple[BackendView, ...] = ()
    posted: list[object]

    def __init__(self, _path: str) -> None:
        pass

    def status(self) -> Snapshot:
        if Answers.error is not None:
            raise Answers.error
        return Snapshot(1, 0.0, 0.0, "observe", "observe", None, SelfView(1, "0", 0.0), backends=Answers.views)


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> type[Answers]:
    monkeypatch.setattr(Answers, "error", DaemonUnreachable("moetuned is not running"))
    monkeypatch.setattr(Answers, "views", ())
    monkeypatch.setattr("moetuned.api.client.Client", Answers)
    return Answers


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(warm.command, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output + result.stderr
    return result


def as_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json", code=code).stdout)
    return found


def watched(model: Path, state: str = "off") -> BackendView:
    return BackendView(
        "glm",
        "llama-server",
        Verdict("glm", 0.0),
        "is idle",
        pid=7,
        model_path=str(model),
        warm=WarmView(state),
        cgroup="/cg",
    )


@pytest.mark.kernel
def test_without_a_daemon_it_is_warmed_here(model: Path) -> None:
    if filesystem_of(read_model(str(model))) in ("tmpfs", "ramfs"):
        pytest.skip("files are in memory here; set TMPDIR to a directory on a disk")
    drop_pages(str(model))
    out = run(model).stdout.splitlines()
    assert out[0].startswith("m.gguf: warmed ")
    assert out[1].endswith("-> 100 %")
    assert out[2].startswith("  charged to ")
    found = as_json(model)
    assert (found["by"], found["state"], found["done_bytes"]) == ("here", "nothing", 0)
    assert found["before"]["resident_bytes"] == model.stat().st_size


def test_memory_near_its_limit_is_refused_aloud(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "limits_at", lambda _place: (NEAR,))
    assert "not warmed: memory is near its limit: 1.0 GiB of 16.0 GiB" in run(model, code=4).stdout
    assert as_json(model, code=4)["state"] == "refused"


def test_it_is_warmed_in_the_backends_cgroup(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def here(_model: object, _before: object, _limits: object, join: str, *more: object, **_: object) -> Outcome:
        asked.extend([join, *more[:2]])
        return Outcome("done", "it fits", 5, 5, 1.0)

    monkeypatch.setattr(warm, "users_of", lambda _paths: (MappedBy(77, "llama-server", "llama-server"),))
    monkeypatch.setattr(warm, "find_place", lambda _users, _asked: Place("/cg", "/cg", 2, "charged to /cg, its cgroup"))
    monkeypatch.setattr(warm, "warm_here", here)
    found = as_json(model, "--budget", "1G", "--rate", "10M")
    assert asked == ["/cg", GIB, 10 << 20]
    assert (found["backend"], found["charged_to"]) == ("llama-server (pid 77)", "/cg")
    assert found["notes"] == ["charged to /cg, its cgroup"]


def test_a_daemon_that_watches_it_is_asked(model: Path, daemon: type[Answers], monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.error, daemon.views = None, (watched(model),)
    asked: list[str] = []

    def by_daemon(_client: object, name: str, draw: Any) -> Outcome:
        asked.append(name)
        draw(0, 0, "somebody asked")
        draw(1, 9, "")
        return Outcome("done", "it fits", 9, 9, 1.0)

    monkeypatch.setattr(warm, "warm_by_daemon", by_daemon)
    found = as_json(model)
    assert asked == ["glm"]
    assert (found["by"], found["backend"], found["charged_to"], found["state"]) == ("daemon", "glm", "/cg", "done")
    assert "warmed by the daemon for the backend glm" in run(model).stdout


def test_off_a_terminal_following_the_daemon_prints_lines(
    model: Path, daemon: type[Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.error, daemon.views = None, (watched(model),)

    def by_daemon(_client: object, _name: str, draw: Any) -> Outcome:
        draw(0, 0, "the backend itself reads")
        return Outcome("done", "it fits", 9, 9, 1.0)

    monkeypatch.setattr(warm, "warm_by_daemon", by_daemon)
    assert run(model).stderr == "glm: waits: the backend itself reads\n"
    assert run(model, "--json").stderr == ""


def test_a_budget_below_a_page_is_refused_and_others_are_whole_pages(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "1 is too little: memory comes in pages of" in run(model, "--budget", "1", code=2).stderr
    asked: list[object] = []

    def here(
        _model: object, _before: object, _limits: object, _join: object, budget: object, *_: Any, **__: Any
    ) -> Outcome:
        asked.append(budget)
        return Outcome("done", "it fits", 9, 9, 1.0)

    monkeypatch.setattr(warm, "warm_here", here)
    run(model, "--budget", str(PAGE_BYTES + 1))
    assert asked == [PAGE_BYTES]


def test_a_budget_is_not_the_daemons(model: Path, daemon: type[Answers], monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.error, daemon.views = None, (watched(model),)
    monkeypatch.setattr(warm, "warm_here", lambda *_, **__: Outcome("done", "it fits", 5, 5, 1.0))
    assert as_json(model, "--budget", "1G")["by"] == "here"
    daemon.views = (watched(model, "running"),)
    assert "the daemon is warming it" in run(model, "--budget", "1G", code=4).stderr


def test_a_daemon_that_waits_in_vain_is_in_nobodys_way(
    model: Path, daemon: type[Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "its file was replaced"
    view = msgspec.structs.replace(
        watched(model), warm=WarmView("waiting", detail=f"unknown: {why}"), residency=ResidencyView(unknown=why)
    )
    daemon.error, daemon.views = None, (view,)
    monkeypatch.setattr(warm, "warm_by_daemon", lambda *_: Outcome("failed", f"unknown: {why}"))
    assert as_json(model, code=1)["notes"] == ["the daemon was asked, for the backend glm"]
    monkeypatch.setattr(warm, "warm_here", lambda *_, **__: Outcome("done", "it fits", 5, 5, 1.0))
    assert as_json(model, "--budget", "1G")["by"] == "here"


def test_a_daemon_that_may_not_be_asked_is_a_note(model: Path, daemon: type[Answers]) -> None:
    daemon.error = DaemonRefused("You may not use /s")
    assert as_json(model)["notes"] == ["the daemon was not asked: You may not use /s"]


def test_a_daemon_that_was_named_has_to_answer(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert moetunectl(["warm", str(model), "--socket", "/none"]) == 3
    assert "not running" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [("--budget", "0"), ("--rate", "much"), ("--cgroup", "/tmp")])
def test_wrong_options(model: Path, wrong: tuple[str, str]) -> None:
    run(model, *wrong, code=2)


def test_no_model(tmp_path: Path) -> None:
    assert str(tmp_path / "none.gguf") in run(tmp_path / "none.gguf", code=2).stderr
