"""`moetunectl tune plan` over the fake kernel: what would be set, left and given back, and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.fake_kernel import FakeKernel
from tune_over_fake import as_json, run

from moetuned.cli import tune_plan
from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import SwapKind, SwapStep, SwapStepKind

PRESSURE = "/proc/sys/vm/vfs_cache_pressure"


def test_plan_shows_what_apply_would_give_back(root: Path, kernel: FakeKernel) -> None:
    run(root, "apply")
    for profile, reason in (("observe", "no longer wanted"), ("moe-offload", "profile")):
        steps = {step["name"]: step for step in as_json(root, "plan", "--profile", profile)["steps"]}
        line = steps["vm.overcommit_memory"]
        assert (line["step"] == "give back") is (profile == "observe")
        assert reason in line["reason"]
    (root / "etc/moetuned/moetuned.yaml").write_text(
        "tuning: {profile: moe-offload, sysctl: {vm.dirty_ratio: keep, vm.overcommit_memory: 0}}\n"
    )
    steps = {step["name"]: step for step in as_json(root, "plan")["steps"]}
    assert (steps["vm.dirty_ratio"]["step"], steps["vm.dirty_ratio"]["wanted"]) == ("give back", "20")
    assert steps["vm.overcommit_memory"]["step"] == "give back"
    kernel.foreign_write(PRESSURE, "77")
    assert {step["name"]: step["step"] for step in as_json(root, "plan")["steps"]}["vm.vfs_cache_pressure"] == "leave"


def test_plan_says_what_changes_along_and_wants_nothing_where_it_sets_nothing(root: Path) -> None:
    (root / "etc/moetuned/moetuned.yaml").write_text("tuning: {profile: moe-offload, read_ahead: 64}\n")
    steps = {step["name"]: step for step in as_json(root, "plan", "--profile", "moe-offload-zram")["steps"]}
    assert "vm.min_free_kbytes" in steps["transparent_hugepage"]["side_effect"]
    for name in ("vm.swappiness", "vm.page-cluster"):
        assert (steps[name]["step"], steps[name]["wanted"]) == ("skipped", None)
        assert "no swap is on" in steps[name]["reason"]
    result = run(root, "plan")
    assert "Side effect: The kernel computes vm.min_free_kbytes" in " ".join(result.stdout.split())
    assert "tuning.read_ahead" in result.stderr
    assert "no backend of the config has a model" in result.stderr


def test_values_for_swap_that_is_about_to_be_made_and_swap_that_nobody_wishes_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = SwapStep("swap zram", SwapKind.ZRAM, SwapStepKind.MAKE, "1.0 GiB", priority=100)
    left = TunableView("swap file /x", "applied", wanted="none", now="2.0 GiB", detail="no longer wanted")
    monkeypatch.setattr(tune_plan, "planned_swap", lambda _options, _config: (step,))
    monkeypatch.setattr(tune_plan, "verify_swap", lambda _options, _steps: (left,))
    steps = {each["name"]: each for each in as_json(root, "plan", "--profile", "moe-offload-zram")["steps"]}
    assert (steps["vm.swappiness"]["step"], steps["vm.swappiness"]["wanted"]) == ("write", "133")
    assert "swap zram (to be made)" in steps["vm.swappiness"]["reason"]
    assert steps["swap zram"]["step"] == "make"
    assert (steps["swap file /x"]["step"], steps["swap file /x"]["now"]) == ("give back", "2.0 GiB")


def test_a_value_out_of_bounds_is_said_with_its_file_and_line(root: Path) -> None:
    (root / "etc/moetuned/moetuned.yaml").write_text(
        "tuning:\n  profile: moe-offload\n  sysctl:\n    vm.dirty_ratio: 400\n"
    )
    assert "moetuned.yaml:4: tuning.sysctl.vm.dirty_ratio: 400" in run(root, "plan", code=2).stderr
