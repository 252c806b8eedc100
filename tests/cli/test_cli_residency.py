"""`moetunectl residency`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fakes.gguf_bytes import TensorSpec, gguf_bytes, moe_metadata, moe_tensors, write_parts

from moetuned.cli import residency
from moetuned.decide.heat import STAYED
from moetuned.host.block_devices import FileDevices
from moetuned.host.model_files import read_model
from moetuned.host.model_stamp import model_stamp
from moetuned.schema.heat import Heat
from moetuned.state import heat_store


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors()))
    return path


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(residency.command, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def as_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json", code=code).stdout)
    return found


def test_what_was_just_written_is_in_memory(model: Path) -> None:
    out = run(model).stdout
    assert "m.gguf: " in out
    assert "100 % in memory" in out
    assert "experts" in out


def test_json_adds_up(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    found = as_json(paths[1])
    assert found["model"] == str(paths[0])
    assert found["size_bytes"] == found["expert_size_bytes"] + found["other_size_bytes"]
    assert found["resident_bytes"] == found["expert_resident_bytes"] + found["other_resident_bytes"]
    assert [part["path"] for part in found["parts"]] == [str(path) for path in paths]
    assert sum(part["resident_bytes"] for part in found["parts"]) == found["resident_bytes"]
    assert (found["unknown"], found["served"], found["experts"]) == (None, None, None)


def test_a_model_without_a_known_layout_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({**moe_metadata(), "qwen3moe.expert_count": 7}, moe_tensors()))
    found = as_json(path)
    assert found["expert_size_bytes"] is None
    assert found["resident_bytes"] == path.stat().st_size
    assert "which bytes are experts is unknown" in found["notes"][0]


def test_no_model(tmp_path: Path) -> None:
    assert "no such file" in run(tmp_path / "none.gguf", code=2).stderr.lower()


def test_zfs_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moetuned.cli.model_residency.under_file", lambda _path: FileDevices(filesystem="zfs"))
    found = as_json(model)
    assert found["filesystem"] == "zfs"
    assert "ARC" in found["notes"][0]
    assert "ARC" in run(model).stdout


def test_each_expert(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOETUNED_STATE_DIR", str(tmp_path / "state"))
    found = as_json(model, "--experts")
    assert (found["experts"]["layers"], found["experts"]["experts"]) == (2, 4)
    assert found["experts"]["resident_ratio"] == [[1.0] * 4] * 2
    assert found["served"] == {
        "ratio": None, "looks": None, "age_seconds": None, "unknown": "nothing was learned of its experts yet",
    }  # fmt: skip
    out = run(model, "--experts").stdout
    assert "  0 ████\n  1 ████\n" in out
    assert "served    unknown: nothing was learned" in out


def test_what_was_learned_says_what_would_have_been_served(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOETUNED_STATE_DIR", str(tmp_path / "state"))
    known = read_model(str(model))
    heat = Heat(model_stamp(known), 2, 4, (9, 0, 0, 9, 0, 0, 0, 1), 9, 0.0)
    heat_store.save(
        known.identity.paths, heat, time.time() - 60, restore_interrupted=False, directory=str(tmp_path / "state/heat")
    )
    found = as_json(model, "--experts")["served"]
    assert (found["ratio"], found["looks"], found["unknown"]) == (1.0, 9, None)
    assert found["age_seconds"] >= 60
    assert "learning:" not in run(model, "--experts").stdout
    link = tmp_path / "link.gguf"
    link.symlink_to(model)
    assert "would have served 100 % of recent uses (learned in 9 looks" in run(link, "--experts").stdout.replace(
        "\n            ", " "
    )
    with model.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        os.utime(model, (1, 1))
    assert as_json(model, "--experts")["served"]["unknown"] == "what was learned is of another file of that name"


def test_paging_out_that_did_nothing_is_said_where_heat_is_shown(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOETUNED_STATE_DIR", str(tmp_path / "state"))
    known = read_model(str(model))
    heat = Heat(model_stamp(known), 2, 4, (0,) * 8, 9, 0.0, stayed=True)
    heat_store.save(known.identity.paths, heat, 1.0, restore_interrupted=False, directory=str(tmp_path / "state/heat"))
    found = as_json(model, "--experts")
    assert found["served"]["ratio"] is None
    assert found["notes"] == [f"learning: {STAYED}"]
    assert "stayed in memory" in run(model, "--experts").stdout
    assert as_json(model)["notes"] == []


def test_a_dense_model_has_no_experts_to_show(tmp_path: Path) -> None:
    path = tmp_path / "dense.gguf"
    metadata = {"general.architecture": "llama", "llama.block_count": 1}
    path.write_bytes(gguf_bytes(metadata, [TensorSpec("blk.0.attn_q.weight", (64, 64))]))
    found = as_json(path, "--experts")
    assert found["experts"] is None
    assert "no routed experts" in found["notes"][-1]
    assert (found["expert_size_bytes"], found["resident_bytes"]) == (0, path.stat().st_size)


@pytest.mark.kernel
def test_who_does_not_own_the_model_is_told_nothing_rather_than_all(model: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    script = (
        "import os, sys\n"
        "descriptor = os.open(sys.argv[1], os.O_RDONLY)\n"
        "from moetuned.cli import residency, status\n"
        "os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        "residency.command([f'/proc/self/fd/{descriptor}', '--json'])"
    )
    # Through a descriptor: the directory of a test is closed to others.
    answer = subprocess.run([sys.executable, "-c", script, str(model)], capture_output=True, text=True, check=False)
    assert answer.returncode == 4, answer.stderr
    found = json.loads(answer.stdout)
    assert found["resident_bytes"] is None
    assert "sudo" in found["unknown"]
