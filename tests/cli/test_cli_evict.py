"""`moetunectl evict`."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fakes.gguf_bytes import gguf_bytes, moe_metadata, moe_tensors, write_parts

from moetuned.cli import evict
from moetuned.cli.model_residency import Look, filesystem_of
from moetuned.cli.warm_place import MappedBy
from moetuned.host.model_files import read_model

SERVER = MappedBy(77, "llama-server", "llama-server")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(12, 16), moe_tensors(12, 16)))
    if filesystem_of(read_model(str(path))) in ("tmpfs", "ramfs"):
        pytest.skip("files are in memory here; set TMPDIR to a directory on a disk")
    return path


def run(*arguments: object, code: int = 0, **options: Any) -> Result:
    result = CliRunner().invoke(evict.command, [str(one) for one in arguments], catch_exceptions=False, **options)
    assert result.exit_code == code, result.output + result.stderr
    return result


def as_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json", code=code).stdout)
    return found


@contextmanager
def mapped(path: Path) -> Iterator[None]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as whole:
        for at in range(0, len(whole), 4096):
            assert whole[at] >= 0
        yield


@pytest.mark.kernel
def test_all_of_it_goes(model: Path) -> None:
    out = run(model).stdout
    assert "experts 100 % -> 0 %, other 100 % -> 0 %" in out
    found = as_json(model)
    assert (found["stayed_bytes"], found["stayed_because"], found["mapped_by"]) == (0, None, [])


@pytest.mark.kernel
def test_all_parts_go(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    if filesystem_of(read_model(str(paths[0]))) in ("tmpfs", "ramfs"):
        pytest.skip("files are in memory here")
    found = as_json(paths[2])
    assert found["dropped_bytes"] == sum(path.stat().st_size for path in paths)
    assert found["after"]["resident_bytes"] == 0


@pytest.mark.kernel
def test_what_every_token_needs_can_stay(model: Path) -> None:
    found = as_json(model, "--experts-only", code=as_json_code(model))
    assert found["experts_only"]
    assert found["after"]["expert_resident_bytes"] < found["before"]["expert_resident_bytes"]
    assert found["after"]["other_resident_bytes"] > 0
    assert found["dropped_bytes"] == found["before"]["expert_resident_bytes"] - found["stayed_bytes"]


def as_json_code(model: Path) -> int:
    """A file that was just written is in large folios on some file systems: pages at the borders of experts then stay."""
    run(model)
    model.read_bytes()
    result = CliRunner().invoke(evict.command, [str(model), "--experts-only", "--json"])
    stayed = json.loads(result.stdout)["stayed_bytes"]
    assert result.exit_code == (1 if stayed else 0)
    run(model)
    model.read_bytes()
    return result.exit_code


@pytest.mark.kernel
def test_what_is_mapped_stays_and_it_is_said_by_whom(model: Path) -> None:
    with mapped(model):
        found = as_json(model, code=1)
        assert found["stayed_bytes"] > 0
        assert f"(pid {found['mapped_by'][0]['pid']}) has it mapped" in found["stayed_because"]
        assert "stayed:" in run(model, code=1).stdout
    run(model)


def test_who_may_not_know_what_is_there_drops_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evict, "looked", lambda _model: Look(unknown="run this with sudo", refused=True))
    monkeypatch.setattr(evict, "drop_pages", lambda *_: pytest.fail("it dropped"))
    assert "sudo" in run(model, code=4).stderr


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 4), ("\n", 4)])
@pytest.mark.kernel
def test_on_a_terminal_it_asks_when_a_backend_has_it(
    model: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr(evict, "users_of", lambda _paths: (SERVER,))
    monkeypatch.setattr(evict, "_on_a_terminal", lambda: True)
    result = run(model, code=code, input=answer)
    assert "llama-server (pid 77) has the model mapped" in result.stderr
    assert ("nothing was dropped" in result.stderr) == (code == 4)


@pytest.mark.kernel
def test_it_does_not_ask_where_it_need_not(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evict, "users_of", lambda _paths: (SERVER,))
    monkeypatch.setattr(evict.click, "confirm", lambda *_, **__: pytest.fail("it asked"))
    run(model)
    monkeypatch.setattr(evict, "_on_a_terminal", lambda: True)
    run(model, "--yes")
    monkeypatch.setattr(evict, "users_of", lambda _paths: (MappedBy(5, "vmtouch", None),))
    run(model)


def test_experts_only_needs_experts(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({**moe_metadata(), "qwen3moe.expert_count": 7}, moe_tensors()))
    assert "is unknown" in run(path, "--experts-only", code=2).stderr


def test_a_part_that_vanishes_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: str, *_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(evict, "drop_pages", gone)
    assert f"{model}: No such file" in run(model, "--yes", code=1).stderr


def test_no_model(tmp_path: Path) -> None:
    run(tmp_path / "none.gguf", code=2)


def test_on_a_file_system_in_memory_the_reason_is_said_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evict, "filesystem_of", lambda _model: "tmpfs")
    monkeypatch.setattr(evict, "drop_pages", lambda *_: None)
    model.read_bytes()
    out = run(model, code=1).stdout
    assert "stayed: a file on tmpfs is memory" in out
    assert out.count("tmpfs") == 1
