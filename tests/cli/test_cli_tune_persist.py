"""moetunectl tune persist and unpersist over the fake kernel: the files, what is shown, and the exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fakes.fake_kernel import FakeKernel, Text, add_disk, usual_kernel

from moetuned.cli import tune, tune_options, tune_persist
from moetuned.decide.persist import READERS
from moetuned.parse.persisted_file import Standing, standing
from moetuned.schema.swap import SwapKind, SwapStep, SwapStepKind

SYSCTL = "etc/sysctl.d/90-moetuned.conf"
TMPFILES = "etc/tmpfiles.d/moetuned.conf"
UDEV = "etc/udev/rules.d/90-moetuned.rules"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    """The usual kernel in place of the machine's, with the programs that read our files."""
    fake = usual_kernel()
    fake.files |= {programs[0]: Text("") for programs in READERS.values()}
    for module in (tune_options, tune_persist):
        monkeypatch.setattr(module, "RealFS", lambda _root: fake)
    return fake


@pytest.fixture
def root(tmp_path: Path, kernel: FakeKernel) -> Path:
    """Where config and files lie."""
    configure(tmp_path, "tuning: {profile: moe-offload, thp: never}\n")
    return tmp_path


def configure(root: Path, text: str) -> None:
    config = root / "etc/moetuned/moetuned.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(text)
    config.chmod(0o600)


def run(root: Path, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(tune.command, [*arguments, "--root", str(root)], catch_exceptions=False)
    assert result.exit_code == code, result.output + result.stderr
    return result


def files(root: Path) -> set[str]:
    found = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    return {path for path in found if not path.startswith("etc/moetuned/")}


def test_persist_shows_and_writes_and_unpersist_takes_away(root: Path, kernel: FakeKernel) -> None:
    shown = run(root, "persist").stdout
    assert files(root) == {SYSCTL, TMPFILES}
    assert "+vm.dirty_ratio = 10" in shown
    assert f"/{SYSCTL}: written" in shown
    assert "vm.dirty_ratio = 10\n" in (root / SYSCTL).read_text()
    assert "w! /sys/kernel/mm/transparent_hugepage/enabled - - - - never\n" in (root / TMPFILES).read_text()
    assert all(standing((root / path).read_text()) is Standing.OURS for path in files(root))
    assert (root / SYSCTL).stat().st_mode & 0o777 == 0o644
    again = run(root, "persist").stdout
    assert f"/{SYSCTL}: unchanged" in again
    assert "+vm" not in again
    gone = run(root, "unpersist").stdout
    assert "-vm.dirty_ratio = 10" in gone
    assert f"/{SYSCTL}: removed" in gone
    assert files(root) == set()
    assert "Nothing to take away" in run(root, "unpersist").stdout
    assert kernel.writes() == []


def test_a_dry_run_writes_nothing(root: Path) -> None:
    shown = run(root, "persist", "--dry-run").stdout
    assert "+vm.dirty_ratio = 10" in shown
    assert "would be written" in shown
    assert files(root) == set()
    run(root, "persist")
    assert "would be removed" in run(root, "unpersist", "--dry-run").stdout
    assert files(root) == {SYSCTL, TMPFILES}


def test_json_says_the_same(root: Path) -> None:
    report: Any = json.loads(run(root, "persist", "--json").stdout)
    assert (report["ok"], report["done"]) == (True, True)
    assert [(file["path"], file["step"]) for file in report["files"]] == [
        (f"/{SYSCTL}", "write"),
        (f"/{TMPFILES}", "write"),
    ]
    assert report["files"][0]["after"] == (root / SYSCTL).read_text()
    dry = json.loads(run(root, "unpersist", "--dry-run", "--json").stdout)
    assert (dry["done"], [file["step"] for file in dry["files"]]) == (False, ["remove", "remove"])


def test_an_edited_file_is_refused_by_both_and_nothing_else_is_touched(root: Path) -> None:
    run(root, "persist")
    edited = (root / SYSCTL).read_text() + "vm.swappiness = 1\n"
    (root / SYSCTL).write_text(edited)
    for arguments in (["persist", "--profile", "observe"], ["unpersist"], ["unpersist", "--dry-run"]):
        before = {path: (root / path).read_text() for path in files(root)}
        if "observe" not in arguments:
            said = run(root, *arguments, code=4).stderr
            assert f"/{SYSCTL} was edited" in said
            assert "by hand" in said
        assert {path: (root / path).read_text() for path in files(root)} == before
    (root / TMPFILES).unlink()
    report = json.loads(run(root, "persist", "--json", code=4).stdout)
    assert (report["ok"], report["done"]) == (False, False)
    assert files(root) == {SYSCTL}


def test_a_file_of_somebody_else_and_a_link_are_refused(root: Path) -> None:
    (root / SYSCTL).parent.mkdir(parents=True)
    (root / SYSCTL).write_text("vm.swappiness = 1\n")
    assert "was not written by moetuned" in run(root, "persist", code=4).stderr
    (root / SYSCTL).unlink()
    (root / SYSCTL).symlink_to("/dev/null")
    assert "not a plain file" in run(root, "persist", code=4).stderr
    assert "not a plain file" in run(root, "unpersist", code=4).stderr
    assert (root / SYSCTL).is_symlink()


def test_who_has_the_last_word_is_named(root: Path, kernel: FakeKernel) -> None:
    kernel.files["/etc/sysctl.d/99-x.conf"] = Text("# a\nvm.dirty_ratio = 40\nvm.dirty_background_ratio=5\n")
    result = run(root, "persist", "--dry-run")
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("warning:")]
    assert "vm.dirty_ratio" in warning
    assert "/etc/sysctl.d/99-x.conf line 2 sets it to 40" in warning
    assert "99-x.conf" in json.loads(run(root, "persist", "--dry-run", "--json").stdout)["warnings"][0]


def test_the_read_ahead_of_a_disk_becomes_a_rule_for_that_disk(
    root: Path, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_disk(kernel, "vda", "252:0", 8192, "/")
    kernel.files["/sys/devices/pci0000:00/block/vda/wwid"] = Text("eui.1\n")
    monkeypatch.setattr(tune_options, "device_number", lambda _path: (252, 0))
    (root / "m.gguf").write_bytes(b"")
    configure(root, "tuning: {read_ahead: 128, profile: moe-offload}\nbackends: [{name: a, model: /m.gguf}]\n")
    run(root, "persist")
    rule = (root / UDEV).read_text().splitlines()[-1]
    assert rule.endswith('ATTR{wwid}=="eui.1", ATTR{bdi/read_ahead_kb}="128"')


def test_a_file_that_nothing_reads_is_warned_of(root: Path, kernel: FakeKernel) -> None:
    del kernel.files["/usr/bin/systemd-tmpfiles"]
    (warning,) = [line for line in run(root, "persist").stderr.splitlines() if line.startswith("warning:")]
    assert f"/{TMPFILES} has no effect" in warning


def test_nothing_to_keep(root: Path) -> None:
    configure(root, "tuning: {profile: observe}\n")
    assert "Nothing to keep" in run(root, "persist").stdout
    assert files(root) == set()


def test_without_root_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for name in ("persist", "unpersist"):
        result = CliRunner().invoke(tune.command, [name])
        assert result.exit_code == 4
        assert "sudo" in result.stderr


def test_a_full_disk_leaves_everything_as_it_was(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    assert f"{SYSCTL} cannot be written: No space left" in run(root, "persist", code=1).stderr
    assert files(root) == set()


def test_help_has_examples() -> None:
    for name in ("persist", "unpersist"):
        shown = CliRunner().invoke(tune.command, [name, "--help"]).stdout
        assert "Examples:" in shown
        assert f"sudo moetunectl tune {name}" in shown


def test_swap_and_what_is_set_for_it_are_not_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(root, "tuning: {profile: moe-offload-zram}\n")
    step = SwapStep("swap zram", SwapKind.ZRAM, SwapStepKind.MAKE, "1.0 GiB", priority=100)
    monkeypatch.setattr(tune_persist, "planned_swap", lambda _options, _config: (step,))
    report: Any = json.loads(run(root, "persist", "--json").stdout)
    assert "vm.dirty_ratio = 10" in (root / SYSCTL).read_text()
    assert "swappiness" not in (root / SYSCTL).read_text()
    reasons = {each["name"]: each["reason"] for each in report["left_out"]}
    assert "no file makes it" in reasons["swap zram"]
    assert "for swap that moetuned makes" in reasons["vm.swappiness"]
    assert "vm.page-cluster" in reasons


def test_a_swap_value_that_the_config_asks_for_is_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(root, "tuning: {profile: moe-offload-zram, sysctl: {vm.swappiness: 90}, swap: {file: /s, size: 2GiB}}\n")
    step = SwapStep("swap file /s", SwapKind.FILE, SwapStepKind.SKIPPED, "2.0 GiB", reason="no room")
    monkeypatch.setattr(tune_persist, "planned_swap", lambda _options, _config: (step,))
    report: Any = json.loads(run(root, "persist", "--json").stdout)
    assert "vm.swappiness = 90" in (root / SYSCTL).read_text()
    assert {"name": "swap file /s", "reason": "no room"} in report["left_out"]


def test_nothing_to_keep_says_what_to_try_and_what_is_there(root: Path) -> None:
    run(root, "persist")
    configure(root, "")
    said = run(root, "persist").stdout
    assert "Try --profile moe-offload" in said
    assert f"In /etc there still is /{SYSCTL}" in said
    assert "tune unpersist" in said


def test_a_fifo_in_place_of_a_file_is_refused_at_once(root: Path) -> None:
    (root / SYSCTL).parent.mkdir(parents=True)
    os.mkfifo(root / SYSCTL)
    assert "not a plain file" in run(root, "persist", code=4).stderr
