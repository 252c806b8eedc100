"""What to write into the config for a read-ahead that was measured: it must work as it stands there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from moetuned.cli import read_ahead_advice
from moetuned.cli.read_ahead_advice import how_to_keep
from moetuned.cli.read_ahead_view import ReadAheadReport
from moetuned.cli.tune_options import Options
from moetuned.host.block_devices import FileDevices
from moetuned.parse.config_text import load_with_warnings
from moetuned.schema.snapshot import TunableView

VDA = "/sys/block/vda/bdi/read_ahead_kb"
REPORT = ReadAheadReport(
    model="/m/a.gguf", model_bytes=1, slice_bytes=1, device="vda", setting=VDA, now_kib=8192, best_kib=64, computed_kib=128,
    computed_because="", cached_bytes=1, cached_ratio=0.5, threads=1, seconds=1.0, read_bytes=1, values=(),
)  # fmt: skip


def advice(tmp_path: Path, text: str, report: ReadAheadReport = REPORT, *, apply_it: bool = False) -> str:
    path = tmp_path / "moetuned.yaml"
    path.write_text(text)
    path.chmod(0o600)
    options = Options(as_json=False, root="/", journal="/x/undo.jsonl", config=str(path))
    return "\n".join(how_to_keep(options, report, VDA, apply_it))


@pytest.fixture(autouse=True)
def _on_vda(monkeypatch: pytest.MonkeyPatch) -> None:
    """All models below /m are on vda."""

    def under(path: str) -> FileDevices:
        return FileDevices(read_ahead_path=VDA) if path.startswith("/m/") else FileDevices(unknown="no such file")

    monkeypatch.setattr(read_ahead_advice, "under_file", under)


HAS_MODEL = "backends: [{name: a, model: /m/b.gguf}]\n"


def test_the_line_for_a_config_without_tuning_is_a_config(tmp_path: Path) -> None:
    said = advice(tmp_path, HAS_MODEL)
    (line,) = [line for line in said.splitlines() if "tuning:" in line]
    config, warnings = load_with_warnings([("x.yaml", f"{HAS_MODEL}{line.strip()}\n")])
    assert (config.tuning.read_ahead, warnings) == (64, ())
    assert "name the model" not in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tuning: {profile: moe-offload}\n", "add `read_ahead: 64` under `tuning:`"),
        ("tuning: {profile: moe-offload, read_ahead: 128}\n", "write `read_ahead: 64` instead of `read_ahead: 128`"),
        ("tuning: {sysctl: {vm.dirty_ratio: 5}}\n", "set `profile: moe-offload` and `read_ahead: 64` under `tuning:`"),
        ("tunning: {}\n", "The config cannot be used as it is"),
    ],
)
def test_a_config_as_it_is_gets_what_it_lacks(tmp_path: Path, text: str, says: str) -> None:
    assert says in advice(tmp_path, text + HAS_MODEL)


@pytest.mark.parametrize(
    "backends", ["", "backends: [{name: a}]\n", "backends: [{name: a, model: /elsewhere/b.gguf}]\n"]
)
def test_without_the_model_it_would_be_set_for_no_disk(tmp_path: Path, backends: str) -> None:
    said = advice(tmp_path, "tuning: {profile: moe-offload}\n" + backends)
    assert "`model: /m/a.gguf`" in said


def test_what_was_applied_lasts_only_so_long(tmp_path: Path) -> None:
    applied = msgspec.structs.replace(REPORT, applied=TunableView("read_ahead_kb vda", "applied", now="64"))
    said = advice(tmp_path, HAS_MODEL, applied, apply_it=True)
    assert "The next `moetunectl tune apply` or start of the daemon takes it away unless the config has it" in said
    assert "--apply" not in advice(tmp_path, HAS_MODEL, msgspec.structs.replace(REPORT, noisy=True))
    assert "It is not applied, as it was not measured" in advice(tmp_path, HAS_MODEL, apply_it=True)
