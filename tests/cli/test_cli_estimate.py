from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fakes.gguf_bytes import gguf_bytes
from fakes.model_stub import write_stub

from moetuned.cli.main import run


@pytest.fixture(autouse=True)
def _no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))


def test_json_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write_stub(tmp_path, "qwen3moe-235b")[0]
    assert run(["estimate", str(path), "--ram", "64G", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert type(found["expert_bytes"]) is int
    assert found["expert_bytes"] + found["other_bytes"] == path.stat().st_size
    assert found["fits"] is True


def test_a_screen_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    parts = write_stub(tmp_path, "qwen3moe-235b", parts=2)
    assert run(["estimate", str(parts[1]), "--ram", "64G", "--disk-read", "3.5G"]) == 0
    out = capsys.readouterr().out
    assert "142 GiB in 2 files" in out
    assert "not a promise" in out


def test_what_does_not_fit_is_a_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = str(write_stub(tmp_path, "qwen3moe-235b")[0])
    with pytest.raises(SystemExit) as ended:
        run(["estimate", path, "--ram", "4G"])
    assert ended.value.code == 1
    assert "DOES NOT FIT" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--ram", "0"], "'--ram': 0 is too little"),
        (["--vram", "much"], "'--vram': 'much' is no size"),
        (["--context", "0"], "'--context'"),
        (["--slots", "257"], "'--slots'"),
        (["--cache-type-v", "q9"], "'q9' is no cache type"),
        (["--backend", "/none"], "--backend /none: there is no such file"),
        (["--measure"], "not wholly on this disk"),
    ],
)
def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str):
    path = str(write_stub(tmp_path, "qwen3moe-30b")[0])
    try:
        code: object = run(["estimate", path, *arguments])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no model", "moetunectl: "),
        (gguf_bytes({"general.architecture": "qwen3moe"}), "qwen3moe.block_count"),
        (None, "No such file"),
    ],
)
def test_what_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, says: str):
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        run(["estimate", str(path)])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_no_header_steers_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "a\x1b[31m\nb"}))
    with pytest.raises(SystemExit):
        run(["estimate", str(path)])
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert err.count("\n") == 1


def test_a_name_that_is_no_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write_stub(tmp_path, "qwen3moe-30b")[0].rename(tmp_path / os.fsdecode(b"b\xff.gguf"))
    assert run(["estimate", str(path), "--ram", "64G", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == str(path)


@pytest.mark.parametrize(
    ("rate", "bytes_per_second"),
    [("3.5G", 3_500_000_000), ("550MB/s", 550_000_000), ("512MiB", 512 << 20), ("7000000000", 7_000_000_000)],
)
def test_disks_are_sold_in_powers_of_1000(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: str, bytes_per_second: int
):
    path = str(write_stub(tmp_path, "qwen3moe-30b")[0])
    assert run(["estimate", path, "--ram", "64G", "--disk-read", rate, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["disk"]["sequential_bytes_per_second"] == bytes_per_second


@pytest.mark.parametrize(
    ("program", "says"),
    [("plain", "is not executable"), ("directory", "is no file"), ("absent", "no such file")],
)
def test_what_is_no_backend_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str, says: str):
    path = str(write_stub(tmp_path, "qwen3moe-30b")[0])
    (tmp_path / "plain").write_text("no program")
    (tmp_path / "directory").mkdir()
    with pytest.raises(SystemExit) as ended:
        run(["estimate", path, "--backend", str(tmp_path / program)])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_swap_of_another_machine_is_not_called_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = str(write_stub(tmp_path, "qwen3moe-30b")[0])
    assert run(["estimate", path, "--ram", "64G"]) == 0
    out = capsys.readouterr().out
    assert "\n  swap " not in out
    assert "the kind of disk (say yours with --disk-read)" in " ".join(out.split())
