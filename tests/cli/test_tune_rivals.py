"""Who else sets a setting, as plan and explain show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakes.fake_kernel import FakeKernel, Text, usual_kernel

from moetuned.cli import tune, tune_explain, tune_options, tune_rivals
from moetuned.cli.tune_options import Options
from moetuned.schema.tunable import Codec, Place

RATIO = Place("/proc/sys/vm/dirty_ratio", Codec.INTEGER, "/proc/sys/vm/dirty_bytes")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    fake = usual_kernel()
    fake.files["/etc/sysctl.d/99-mine.conf"] = Text("# mine\nvm.dirty_ratio = 40\nvm.vfs_cache_pressure = 50\n")
    fake.files["/usr/lib/systemd/system-generators/zram-generator"] = Text("")
    fake.files["/etc/systemd/zram-generator.conf"] = Text("[zram0]\n")
    for module in (tune, tune_explain, tune_options, tune_rivals):
        monkeypatch.setattr(module, "RealFS", lambda _root: fake)
    return fake


def as_json(root: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(tune.command, [*arguments, "--json", "--root", str(root)], catch_exceptions=False)
    return json.loads(result.stdout)


def test_only_those_who_set_something_else_are_named_in_a_plan(tmp_path: Path, kernel: FakeKernel) -> None:
    steps = {step["name"]: step for step in as_json(tmp_path, "plan", "--profile", "moe-offload")["steps"]}
    assert steps["vm.dirty_ratio"]["also_set_by"] == ["/etc/sysctl.d/99-mine.conf line 2 sets it to 40 at boot"]
    assert steps["vm.vfs_cache_pressure"]["also_set_by"] == []
    text = CliRunner().invoke(tune.command, ["plan", "--profile", "moe-offload", "--root", str(tmp_path)]).stdout
    assert "Also set by: /etc/sysctl.d/99-mine.conf line 2 sets it to 40 at boot" in " ".join(text.split())


def test_all_of_them_are_named_in_an_explanation(tmp_path: Path, kernel: FakeKernel) -> None:
    (entry,) = as_json(tmp_path, "explain", "vm.vfs_cache_pressure")
    assert entry["also_set_by"] == "/etc/sysctl.d/99-mine.conf line 3 sets it to 50 at boot"


def test_asked_for_one_setting(tmp_path: Path, kernel: FakeKernel) -> None:
    rivals = tune_rivals.find(Options(as_json=False, root=str(tmp_path), journal=""))
    assert len(rivals.of(RATIO)) == len(rivals.of(RATIO, "10")) == 1
    assert rivals.of(RATIO, "40") == ()
    assert "zram-generator" in rivals.of_swap()[0]
